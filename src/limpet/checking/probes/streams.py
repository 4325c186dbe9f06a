"""Probes of streams in a session: a cut costs a connection, never the session or an event."""

import asyncio
from typing import Any, Final

from limpet.checking.ground import Ground, NotApplicable, ProbeFailed
from limpet.checking.lane import Lane, Question
from limpet.checking.probes.answers import answers_still
from limpet.checking.seen_response import EVENT_STREAM, SeenEvent, SeenResponse
from limpet.transports.http import HttpAnswer

CUTS: Final = 5
_CALL: Final = 4711
"""The id of the call that is cut. No other request has it."""
_CUTS_MOST: Final = 50
_RETRY_MOST: Final = 1.0
_PAUSE: Final = 0.05
NOT_OFFERED: Final = (405, 501)
"""Statuses of a method that the server does not offer."""
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_CONFLICTS_MOST: Final = 5
_CONFLICT_SECONDS: Final = 0.2
_NO_EVENTS: Final = (
    "the call was answered without an event id, so there is nothing to resume: "
    "name a tool with --tool that takes a second or reports progress"
)


async def resume(ground: Ground) -> str:
    """Cut the stream of a call after each event, and resume it until the answer."""
    call = ground.answered_call()
    lane = await ground.session()
    token = ground.peer.next_token()
    call = call.with_token(token)
    seen = await _first_event(lane, call)
    journey = _Journey(token, seen.events)
    deadline = asyncio.get_running_loop().time() + ground.seconds_for(2)
    while not journey.is_answered and journey.cuts < _CUTS_MOST:
        await _continue(lane, journey, deadline)
    journey.check()
    await _check_loss(lane, call, journey)
    return f"{len(journey.messages)} messages through {journey.cuts} cuts: none lost, none twice"


class _Journey:
    """The events of one call through several connections."""

    def __init__(self, token: str, events: list[SeenEvent]) -> None:
        self.token = token
        self.cuts = 1
        self.events: list[SeenEvent] = []
        self.last = ""
        """The id of the last event."""
        self.pause = 0.0
        self.conflicts = 0
        self.add(events)

    def add(self, events: list[SeenEvent]) -> None:
        self.events += events
        for event in events:
            self.last = event.id or self.last
            self.pause = min((event.retry or 0) / 1000, _RETRY_MOST)

    @property
    def messages(self) -> list[Any]:
        return [one.message for one in self.events if one.message is not None]

    @property
    def is_answered(self) -> bool:
        return any(one.is_answer for one in self.events)

    @property
    def steps(self) -> list[Any]:
        return steps(self.events, self.token)

    def check(self) -> None:
        """Complain about an answer or an event that is missing or repeated."""
        answers = sum(one.is_answer for one in self.events)
        if answers != 1:
            raise ProbeFailed(f"{answers} answers arrived through {self.cuts} cuts")
        ids = [one.id for one in self.events if one.id and one.message is not None]
        repeated = len(ids) - len(set(ids))
        # The progress of one call must increase, so that a value that comes twice is a repeated message.
        repeated = repeated or len(self.steps) - len(set(map(str, self.steps)))
        if repeated:
            raise ProbeFailed(
                f"{repeated} of {len(self.messages)} messages arrived twice through {self.cuts} cuts"
            )


def steps(events: list[SeenEvent], token: str) -> list[Any]:
    """Return the progress values of a call."""
    found = []
    for event in events:
        params = event.message.get("params") if isinstance(event.message, dict) else None
        if isinstance(params, dict) and params.get("progressToken") == token:
            found.append(params.get("progress"))
    return found


async def _continue(lane: Lane, journey: _Journey, deadline: float) -> None:
    """Resume after the last event, read one message, and cut."""
    loop = asyncio.get_running_loop()
    left = deadline - loop.time()
    if left <= 0:
        raise ProbeFailed(f"the answer did not arrive after {journey.cuts} cuts")
    outcome = await lane.peer.send(
        "GET",
        lane.get_headers(journey.last),
        until=lambda seen: seen.events[-1].message is not None,
        seconds=min(left, lane.peer.patience),
    )
    if outcome.status == _CONFLICT and journey.conflicts < _CONFLICTS_MOST:
        # It has not noticed the cut yet. `second-stream` judges this.
        journey.conflicts += 1
        await asyncio.sleep(_CONFLICT_SECONDS)
        return
    if outcome.status in NOT_OFFERED:
        raise NotApplicable(f"the server gives event ids, but does not resume streams ({outcome})")
    if not outcome.is_ok or outcome.kind != EVENT_STREAM:
        raise ProbeFailed(f"after a cut, the GET with Last-Event-ID got {outcome}")
    journey.add(outcome.events)
    journey.cuts += 1
    has_message = any(one.message is not None for one in outcome.events)
    if not has_message and outcome.ended == "late":
        raise ProbeFailed(
            f"the resumed stream stayed open for {outcome.seconds:.1f} s without a further message, and the answer was lost"
        )
    if not has_message:
        # The server may close the connection at any time; the client then connects again.
        await asyncio.sleep(max(journey.pause, _PAUSE))


async def _check_loss(lane: Lane, call: Question, journey: _Journey) -> None:
    """Compare the progress with that of two calls that are not cut, if those agree."""
    wanted: list[list[Any]] = []
    for _ in range(2):
        token = lane.peer.next_token()
        outcome = await lane.ask(call.with_token(token))
        wanted.append(steps(outcome.events, token))
        if wanted[0] == journey.steps:
            return
    if wanted[0] == wanted[1]:
        raise ProbeFailed(
            f"{len(journey.steps)} progress messages arrived through {journey.cuts} cuts, and {len(wanted[0])} without a cut"
        )


async def foreign_event(ground: Ground) -> str:
    """Resume with an event id of another session, and with an id that was never given."""
    call = ground.answered_call()
    lane, other = await ground.session(), await ground.session()
    token = ground.peer.next_token()
    seen = await _first_event(lane, call.with_token(token))
    for name, given in (
        ("of another session", str(seen.events[-1].id)),
        ("that was never given", "no-such-event-1"),
    ):
        outcome = await other.peer.send(
            "GET", other.get_headers(given), until=lambda one: belongs(one, token), seconds=1.5
        )
        if outcome.events and belongs(outcome, token):
            raise ProbeFailed(f"an event id {name} delivered messages of the other session")
        if outcome.status == _NOT_FOUND:
            raise ProbeFailed(f"an event id {name} got 404, by which a client gives its session up")
        if outcome.status and outcome.is_crash:
            raise ProbeFailed(f"an event id {name} got {outcome}")
    await answers_still(other)
    return "event ids of another session, and unknown ones, deliver nothing"


def belongs(outcome: SeenResponse, token: str) -> bool:
    """Return whether the last event belongs to the call with this progress token, or answers it."""
    last = outcome.events[-1]
    is_answer = last.is_answer and last.message.get("id") == _CALL
    return is_answer or bool(steps([last], token))


async def cuts(ground: Ground) -> str:
    """Cut streams of the session, and calls in work. The session must answer afterwards."""
    lane = await ground.session()
    question = ground.largest(lane)
    for _ in range(CUTS):
        await _cut(lane, question)
    await answers_still(lane)
    return f"{CUTS} GET streams and {CUTS} calls were cut; the session continued"


async def second_stream(ground: Ground) -> str:
    """Open the session's GET stream while an old one is still open, as after a cut that the server did not notice."""
    lane = await ground.session()
    first = await _stream(lane)
    if first.status in NOT_OFFERED:
        raise NotApplicable(f"the server offers no GET stream ({first.status})")
    second = await _stream(lane)
    if second.status != first.status:
        raise ProbeFailed(
            f"the second GET got status {second.status}: a client whose stream was cut without the server's notice cannot return"
        )
    await answers_still(lane)
    return "a second GET stream was accepted beside the first"


async def _stream(lane: Lane) -> HttpAnswer:
    try:
        async with asyncio.timeout(lane.peer.patience):
            return await lane.peer.open("GET", lane.get_headers())
    except TimeoutError:
        raise ProbeFailed(
            f"the head of a GET stream did not arrive within {lane.peer.patience:g} s"
        ) from None


async def _first_event(lane: Lane, call: Question) -> SeenResponse:
    seen = await lane.ask(call, id=_CALL, until=lambda seen: seen.events[-1].id is not None)
    if not seen.is_ok:
        raise ProbeFailed(f"the call got {seen}")
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
