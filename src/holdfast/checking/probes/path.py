"""Probes of the path to the server: proxies that buffer, replicas that do not share sessions, idle streams that are cut."""

import asyncio
from typing import Final

from holdfast.checking.ground import Failed, Ground, NotApplicable
from holdfast.checking.lane import Lane
from holdfast.checking.peer import EVENT_STREAM, NO_ANSWER, Outcome
from holdfast.errors import Broken, WireError
from holdfast.transports.http import HttpAnswer

CONNECTIONS: Final = 16
IDLE_SECONDS: Final = 240.0
"""How long `--slow` watches an idle stream."""
SOON: Final = 1.0
_HELD_BACK: Final = 0.8
"""An event that arrives after this part of the call was held back until its end."""
_TELLING: Final = (
    "server",
    "via",
    "x-served-by",
    "x-backend",
    "x-instance",
    "x-pod",
    "x-amz-cf-pop",
    "fly-region",
)
"""Headers by which servers behind one address differ."""
_REFUSED: Final = 400


async def buffering(ground: Ground) -> str:
    """Measure when the first bytes of a stream arrive: at once, or only with its end."""
    lane = await ground.lane()
    if not lane.is_sessionless and (said := await _first_of_get(lane)):
        return said
    call = ground.call()
    first = await lane.ask(call, until=lambda _: True)
    whole = await lane.ask(call)
    if first.kind != EVENT_STREAM or len(whole.events) <= len(whole.answers) or whole.seconds < SOON:
        raise NotApplicable(
            "no stream sent an event before its answer: name a tool with --tool that reports progress for some seconds"
        )
    said = f"the first event of a call of {whole.seconds:.1f} s arrived after {first.first_byte:.1f} s"
    if first.first_byte > _HELD_BACK * whole.seconds:
        raise Failed(f"{said}: the path holds events back")
    return said


async def _first_of_get(lane: Lane) -> str:
    """Return when the first event of a GET stream arrived; empty if it sends none."""
    outcome = await lane.peer.send("GET", lane.get_headers(), until=lambda _: True, seconds=2 * SOON)
    if outcome.status == NO_ANSWER:
        raise Failed(f"the head of a GET stream did not arrive within {2 * SOON:g} s")
    if outcome.kind != EVENT_STREAM or not outcome.events:
        return ""
    if outcome.first_byte > SOON:
        raise Failed(f"the first event of a GET stream took {outcome.first_byte:.1f} s")
    return f"the first event of a GET stream arrived after {outcome.first_byte * 1000:.0f} ms"


async def replicas(ground: Ground) -> str:
    """Use one session on many new connections, which a balancer spreads over the replicas."""
    lane = await ground.session()
    outcomes = await asyncio.gather(*(_alone(lane) for _ in range(CONNECTIONS)))
    lost = [outcome for outcome in outcomes if outcome.status >= _REFUSED or not outcome.answers]
    if lost:
        raise Failed(f"{len(lost)} of {CONNECTIONS} new connections did not find the session: {lost[0]}")
    seen = {tuple(outcome.headers.get(name, ()) for name in _TELLING) for outcome in outcomes}
    said = f"{len(seen)} different servers showed themselves" if len(seen) > 1 else "one server showed itself"
    return f"{CONNECTIONS} new connections found the session; {said}"


async def idle(ground: Ground) -> str:
    """Leave a GET stream open until it is cut, or for some minutes."""
    lane = await ground.session()
    try:
        async with asyncio.timeout(ground.peer.patience):
            answer = await lane.peer.open("GET", lane.get_headers())
    except TimeoutError:
        raise Failed("the head of a GET stream did not arrive") from None
    if answer.status >= _REFUSED:
        raise NotApplicable(f"the server offers no GET stream ({answer.status})")
    seconds, gaps, ended = await _watch(answer)
    beat = f"something was sent every {max(gaps):.0f} s" if gaps else "nothing was sent"
    if not ended:
        return f"an idle stream was still open after {seconds:.0f} s; {beat}"
    if ended == "cut" or not gaps:
        raise Failed(f"an idle stream was cut after {seconds:.0f} s; {beat}")
    return f"an idle stream was ended in order after {seconds:.0f} s; {beat}"


async def _watch(answer: HttpAnswer) -> tuple[float, list[float], str]:
    """Return the seconds, the gaps between bytes, and how the stream ended; empty if it is still open."""
    loop = asyncio.get_running_loop()
    begun = last = loop.time()
    gaps: list[float] = []
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            while await answer.chunk():
                now = loop.time()
                gaps.append(now - last)
                last = now
        ended = "end"
    except TimeoutError:
        ended = ""
    except (Broken, WireError):
        ended = "cut"
    return loop.time() - begun, gaps, ended


async def _alone(lane: Lane) -> Outcome:
    """Send a plain request on a connection of its own."""
    question = lane.questions()[0]
    headers = {**lane.headers(question.method, {}), "connection": "close"}
    return await lane.peer.send("POST", headers, lane.body(lane.next_id(), question.method, {}))
