"""Trials beside the probes of `limpet check`: each returns a sentence, or raises Failed or NotApplicable."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from limpet import Client
from limpet.checking.ground import NotApplicable, ProbeFailed
from limpet.checking.lane import Lane, Question, initialize
from limpet.checking.peer import Peer
from limpet.checking.seen_response import SeenResponse
from limpet.errors import LimpetError
from limpet.wire.sse import EventParser

LOOK: Final = Question(
    "tools/call", {"name": "look", "arguments": {}, "_meta": {"progressToken": "look"}}, "content"
)
SLOW: Final = Question("tools/call", {"name": "slow", "arguments": {}}, "content")
SAME: Final = Question(
    "tools/call", {"name": "slow", "arguments": {}, "_meta": {"progressToken": "same"}}, "content"
)
"""A call whose body is the same each time; otherwise each has a new progress token."""
PAUSE: Final = 0.5
"""Time for a server to notice that a connection was closed."""
EARLY: Final = 0.2
"""Twice this is less than the tool `slow` takes."""
LARGE: Final = 5 * 1024 * 1024
TOO_LARGE: Final = 413


class Cell(NamedTuple):
    """The outcome of one row for one server."""

    verdict: str
    happened: str


Trial = Callable[[Peer], Awaitable[str]]


async def session(peer: Peer) -> Lane:
    """Open a session."""
    outcome, lane = await initialize(peer)
    if lane is None:
        raise ProbeFailed(f"initialize got {outcome}")
    return lane


def _has_id(outcome: SeenResponse) -> bool:
    return any(event.id for event in outcome.events)


def _text(outcome: SeenResponse) -> str:
    result = outcome.result
    if not isinstance(result, dict) or not result.get("content"):
        raise ProbeFailed(f"the call got {outcome}")
    return str(result["content"][0]["text"])


async def resume(peer: Peer) -> str:
    """Cut the stream of a call, wait, and resume it."""
    lane = await session(peer)
    seen = await lane.ask(LOOK, until=_has_id)
    if not _has_id(seen):
        raise NotApplicable("the stream has no event ids")
    await asyncio.sleep(PAUSE)
    return await _resumed(peer, lane, str(seen.events[-1].id))


async def resume_unnoticed(peer: Peer) -> str:
    """Resume the stream of a call while the server still has the old connection, as after a change of network."""
    lane = await session(peer)
    left = await lane.open(SLOW)
    parser = EventParser(1 << 20)
    last = ""
    while not last:
        chunk = await left.chunk()
        if not chunk:
            raise NotApplicable("the stream has no event ids")
        last = next((str(event.id) for event in parser.feed(chunk) if event.id), "")
    return await _resumed(peer, lane, last)


async def _resumed(peer: Peer, lane: Lane, last: str) -> str:
    outcome = await peer.send("GET", lane.get_headers(last))
    if outcome.result is None:
        raise ProbeFailed(f"the GET with Last-Event-ID got {outcome}")
    return "the GET with Last-Event-ID got the answer"


async def foreign_event(peer: Peer) -> str:
    """Resume with an event id of a finished call of another session."""
    lane, other = await session(peer), await session(peer)
    seen = await lane.ask(LOOK)
    first = next((event.id for event in seen.events if event.id), None)
    if first is None:
        raise NotApplicable("the stream has no event ids")
    outcome = await peer.send("GET", other.get_headers(first), seconds=PAUSE)
    messages = [event for event in outcome.events if event.message is not None]
    if outcome.is_ok and messages:
        raise ProbeFailed(f"{len(messages)} messages of the other session were delivered")
    return f"nothing of the other session was delivered (status {outcome.status})"


async def repeated(peer: Peer) -> str:
    """Cut a POST while its tool runs, and send it again after a moment."""
    lane = await session(peer)
    await lane.ask(SAME, id=77, seconds=EARLY)
    await asyncio.sleep(EARLY)
    again = _text(await lane.ask(SAME, id=77))
    before, after = int(again.split()[-1]), int(_text(await lane.ask(SLOW)).split()[-1])
    if (before, after) != (1, 2):
        raise ProbeFailed(f"the tool ran {after - 1} times for one call")
    return "the tool ran once, and the second POST got its answer"


async def two_ids(peer: Peer) -> str:
    """Call a slow tool with the ids 7 and "7" at once."""
    lane = await session(peer)
    ids = (7, "7")
    outcomes = await asyncio.gather(*(lane.ask(SLOW, id=one) for one in ids))
    for one, outcome in zip(ids, outcomes, strict=True):
        if [answer.get("id") for answer in outcome.answers] != [one]:
            raise ProbeFailed(f"the call with the id {one!r} got {outcome}")
    return "both calls got their own answers"


async def large(peer: Peer) -> str:
    """Send a request of 5 MiB."""
    lane = await session(peer)
    outcome = await lane.ask(
        Question("tools/call", {"name": "look", "arguments": {"x": "x" * LARGE}}, "content")
    )
    if outcome.status != TOO_LARGE:
        raise ProbeFailed(f"it got {outcome}")
    return "it got status 413"


async def asked(peer: Peer, version: str) -> str:
    """Let a function ask the user in the middle of its work."""

    def user(form: Any) -> dict[str, object]:
        return dict.fromkeys(form.requested_schema["properties"], "Ada")

    try:
        async with Client(
            peer.url, protocol_version=version, elicitation=user, timeout=peer.patience
        ) as client:
            done = await client.call_tool("ask", {}, raise_on_error=False)
    except LimpetError as error:
        raise ProbeFailed(str(error)) from error
    if done.text != "hello Ada":
        raise ProbeFailed(done.text)
    return "the function got the user's answer"


async def asked_in_session(peer: Peer) -> str:
    """Ask a client of 2025-11-25."""
    return await asked(peer, "sessions")


async def asked_without_session(peer: Peer) -> str:
    """Ask a client of 2026-07-28."""
    return await asked(peer, "sessionless")


TRIALS: Final[dict[str, Trial]] = {
    "repeated-post": repeated,
    "two-ids": two_ids,
    "resume-after-cut": resume,
    "resume-unnoticed": resume_unnoticed,
    "event-of-another-session": foreign_event,
    "large-request": large,
    "ask-in-session": asked_in_session,
    "ask-without-session": asked_without_session,
}
"""In the order in which they run: `repeated` counts the runs of a tool from the start of the server."""


async def judged(trial: Awaitable[str]) -> Cell:
    """Run a trial."""
    try:
        return Cell("pass", await trial)
    except NotApplicable as error:
        return Cell("not applicable", str(error))
    except LimpetError as error:
        return Cell("fail", str(error))
