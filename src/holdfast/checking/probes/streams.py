"""Probes of streams: a cut costs a connection, never the session or an event."""

import asyncio
from typing import Any, Final

from holdfast.checking.ground import Failed, Ground, NotApplicable
from holdfast.checking.lane import Lane, Question
from holdfast.checking.peer import EVENT_STREAM, Outcome
from holdfast.checking.probes.requests import answers_still
from holdfast.transports.http import HttpAnswer

CUTS: Final = 5
STALLED: Final = 6
_MOMENT: Final = 0.05
_CUTS_MOST: Final = 50
_NOT_ALLOWED: Final = 405
_NOT_FOUND: Final = 404
_NO_EVENTS: Final = (
    "the call was answered without an event id, so there is nothing to resume: "
    "name a tool with --tool that takes a second or reports progress"
)


async def resume(ground: Ground) -> str:
    """Cut the stream of a call after each event, and resume it until the answer."""
    call = ground.call()
    lane = await ground.session()
    seen = await _first_event(lane, call)
    messages: list[Any] = [one.message for one in seen.events if one.message is not None]
    last = str(seen.events[-1].id)
    cuts = 1
    while cuts < _CUTS_MOST:
        outcome = await lane.peer.send("GET", lane.get_headers(last), until=_has_message)
        if not outcome.is_ok or outcome.kind != EVENT_STREAM:
            raise Failed(f"after a cut, the GET with Last-Event-ID got {outcome}")
        if not any(one.message is not None for one in outcome.events):
            raise Failed(
                f"the resumed stream {_end(outcome)} without a further message, and the answer was lost"
            )
        messages += [one.message for one in outcome.events if one.message is not None]
        last = next((one.id for one in reversed(outcome.events) if one.id), last)
        if outcome.answers:
            break
        cuts += 1
    answers = [one for one in messages if isinstance(one, dict) and "method" not in one]
    if len(answers) != 1:
        raise Failed(f"{len(answers)} answers arrived through {cuts} cuts")
    repeated = len(messages) - len({str(one) for one in messages})
    if repeated:
        raise Failed(f"{repeated} of {len(messages)} messages arrived twice through {cuts} cuts")
    return f"{len(messages)} messages through {cuts} cuts: none lost, none twice"


async def foreign_event(ground: Ground) -> str:
    """Resume with an event id of another session, and with an id that was never given."""
    call = ground.call()
    lane, other = await ground.session(), await ground.session()
    seen = await _first_event(lane, call)
    for name, given in (
        ("of another session", str(seen.events[-1].id)),
        ("that was never given", "no-such-event-1"),
    ):
        outcome = await other.peer.send("GET", other.get_headers(given), until=_has_message, seconds=1.5)
        if outcome.is_ok and any(one.message is not None for one in outcome.events):
            raise Failed(f"an event id {name} delivered messages")
        if outcome.status == _NOT_FOUND:
            raise Failed(f"an event id {name} got 404, by which a client gives its session up")
        if outcome.status >= 500:  # noqa: PLR2004 - server errors
            raise Failed(f"an event id {name} got {outcome}")
    await answers_still(other)
    return "event ids of another session, and unknown ones, deliver nothing"


async def cuts(ground: Ground) -> str:
    """Cut streams of the session, and calls in work. The session must answer afterwards."""
    lane = await ground.session()
    question = ground.tool or lane.questions()[-1]
    for _ in range(CUTS):
        await _cut(lane, question)
    await answers_still(lane)
    return f"{CUTS} GET streams and {CUTS} calls were cut; the session continued"


async def stalled(ground: Ground) -> str:
    """Leave several responses unread. Other requests of the session must be answered."""
    lane = await ground.lane()
    question = ground.tool or lane.questions()[-1]
    unread = [asyncio.create_task(lane.open(question)) for _ in range(STALLED)]
    if not lane.is_sessionless:
        unread.append(asyncio.create_task(lane.peer.open("GET", lane.get_headers())))
    await asyncio.sleep(_MOMENT)
    try:
        for _ in range(3):
            await answers_still(lane)
    finally:
        for task in unread:
            task.cancel()
        await asyncio.gather(*unread, return_exceptions=True)
    return f"{len(unread)} responses were not read; the other requests were answered"


async def second_stream(ground: Ground) -> str:
    """Open the session's GET stream while an old one is still open, as after a cut that the server did not notice."""
    lane = await ground.session()
    first = await _stream(lane)
    second = await _stream(lane)
    if first.status == _NOT_ALLOWED:
        raise NotApplicable("the server offers no GET stream (405)")
    if second.status != first.status:
        raise Failed(
            f"the second GET got status {second.status}: a client whose stream was cut without the server's notice cannot return"
        )
    await answers_still(lane)
    return "a second GET stream was accepted beside the first"


async def _stream(lane: Lane) -> HttpAnswer:
    try:
        async with asyncio.timeout(lane.peer.patience):
            return await lane.peer.open("GET", lane.get_headers())
    except TimeoutError:
        raise Failed(f"the head of a GET stream did not arrive within {lane.peer.patience:g} s") from None


async def _first_event(lane: Lane, call: Question) -> Outcome:
    seen = await lane.ask(call, until=_has_id)
    if not seen.is_ok:
        raise Failed(f"the call got {seen}")
    if not seen.events or seen.events[-1].id is None or seen.answers:
        raise NotApplicable(_NO_EVENTS)
    return seen


async def _cut(lane: Lane, question: Question) -> None:
    """Open a GET stream and a call, and cut both."""

    async def opened() -> None:
        await asyncio.gather(lane.peer.open("GET", lane.get_headers()), lane.open(question))

    task = asyncio.create_task(opened())
    await asyncio.wait([task], timeout=0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    lane.peer.release()


def _has_id(outcome: Outcome) -> bool:
    return outcome.events[-1].id is not None


def _has_message(outcome: Outcome) -> bool:
    return outcome.events[-1].message is not None


def _end(outcome: Outcome) -> str:
    return f"stayed open for {outcome.seconds:.1f} s" if outcome.ended == "late" else "ended"
