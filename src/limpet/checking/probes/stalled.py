"""A client that does not read delays only itself.

The probe must fill the buffers between the server and this client, or a server that waits for one reader is not found.
The answers are made large by values that the server must repeat: the progress token of a call in each progress message,
or the id of a request in its response. A server may refuse long values; then shorter ones are tried.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from limpet.checking.ground import Ground, NotApplicable, ProbeFailed
from limpet.checking.lane import Lane, Question
from limpet.checking.probes.answers import answers_still
from limpet.errors import Broken, WireError
from limpet.transports.http import HttpAnswer

STALLED: Final = 2
LENGTHS: Final = (3 * 1024 * 1024, 1024 * 1024, 256 * 1024, 32 * 1024)
"""Of the value that the server repeats, the longest first."""
FULL: Final = 6 * 1024 * 1024
"""The buffers of one connection hold fewer bytes: about 4 MiB in Linux on one machine, less in a network."""
LEAST: Final = 64 * 1024
_SETTLE_SECONDS: Final = 0.3
"""How long the calls write into the buffers before other requests are sent."""
_DRAIN_SECONDS: Final = 2.0
_RECOVER_SECONDS: Final = 8.0
_REFUSED: Final = 300


async def stalled(ground: Ground) -> str:
    """Leave several large responses unread. Other requests must be answered meanwhile."""
    lane = await ground.lane()
    before = max([await answers_still(lane) for _ in range(3)])
    length, opening = await _send_all(ground, lane)
    try:
        await asyncio.wait(opening, timeout=max(_SETTLE_SECONDS, min(ground.facts.call_seconds or 0.0, 1.0)))
        during = max([await answers_still(lane) for _ in range(5)])
        sizes = await asyncio.gather(*(_drain(task) for task in opening))
    except ProbeFailed as error:
        await _end_all(opening)
        lane.peer.release()
        if await _delays_also_when_read(ground, length):
            raise NotApplicable(
                f"responses of {length >> 10} KiB and more delay other requests also if they are read"
            ) from None
        raise ProbeFailed(f"while {STALLED} responses were not read: {error}") from None
    finally:
        await _end_all(opening)
    if max(sizes) < LEAST:
        raise NotApplicable(
            f"the responses have only {max(sizes)} bytes, which fit into the buffers: name a tool with --tool that reports progress"
        )
    filled = "more than" if max(sizes) >= FULL else "perhaps less than"
    return (
        f"{STALLED} responses with {sum(sizes) // 1024} KiB were not read, {filled} the buffers hold; "
        f"the other requests took at most {during * 1000:.0f} ms ({before * 1000:.0f} ms before)"
    )


async def _delays_also_when_read(ground: Ground, length: int) -> bool:
    """Send the same requests and read their responses; return whether other requests fail also then.

    A server that needs long for large messages, for example because it logs them, does not wait for a reader.

    Raises:
        ProbeFailed: a new session is not served although the unread responses are closed.
    """
    lane = await _recover(ground)
    asked = [_request(ground, lane, length, at) for at in range(STALLED)]
    reading = [asyncio.create_task(lane.ask(question, id=used)) for question, used in asked]
    try:
        for _ in range(5):
            await answers_still(lane)
    except ProbeFailed:
        return True
    finally:
        await _end_all(reading)
    return False


async def _recover(ground: Ground) -> Lane:
    """Return a new session, as soon as the server answers in it."""
    deadline = asyncio.get_running_loop().time() + _RECOVER_SECONDS
    while True:
        try:
            lane = await ground.lane()
            await answers_still(lane)
        except ProbeFailed as error:
            if asyncio.get_running_loop().time() > deadline:
                raise ProbeFailed(
                    f"after {STALLED} responses were not read, and then closed: {error}"
                ) from None
            await asyncio.sleep(_SETTLE_SECONDS)
        else:
            return lane


async def _end_all(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _send_all(ground: Ground, lane: Lane) -> tuple[int, list["asyncio.Task[HttpAnswer]"]]:
    """Send the requests with the longest value that the server accepts; return its length, and the requests."""
    tasks: list[asyncio.Task[HttpAnswer]] = []
    for length in LENGTHS:
        for number in range(STALLED):
            question, used = _request(ground, lane, length, number)
            tasks.append(asyncio.create_task(_open(lane, question, used)))
        done, _ = await asyncio.wait(tasks, timeout=_SETTLE_SECONDS)
        refused = any(task.exception() is not None or task.result().status >= _REFUSED for task in done)
        if not refused or length == LENGTHS[-1]:
            return length, tasks
        await _end_all(tasks)
        lane.peer.release()
        tasks.clear()
    return LENGTHS[-1], tasks


async def _open(lane: Lane, question: Question, used: str) -> HttpAnswer:
    """Send a request and read only the head of its response."""
    answer = await lane.open(question, id=used)
    answer.stall()
    return answer


def _request(ground: Ground, lane: Lane, length: int, number: int) -> tuple[Question, str]:
    name = f"stalled-{number}"
    long = name.ljust(length, "x")
    call = ground.facts.tool
    if call is not None and ground.facts.call_steps:
        return call.with_token(long), name
    return ground.largest(lane), long


async def _drain(task: "asyncio.Task[HttpAnswer]") -> int:
    """Read a response to its end, or for a while; return its size."""
    size = 0
    with suppress(TimeoutError, Broken, WireError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            answer = await asyncio.shield(task)
            while chunk := await answer.chunk():
                size += len(chunk)
    return size
