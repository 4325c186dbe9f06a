"""The acts of the demo: each makes one of the four problems happen and judges the result.

An act is the same for every server. It returns the result as text, or raises `Failed` (the guarantee did not hold) or
`NotOffered` (the server does not have what the act needs). The judges take plain values, so tests give them wrong ones.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from limpet.checking.lane import Question
from limpet.checking.seen_response import EVENT_STREAM, SeenResponse
from limpet.cli.demo.stage import Failed, Stage
from limpet.errors import OUTCOME_UNKNOWN, LimpetError

CALLS: Final = 200
CALL_SECONDS: Final = 0.3
ALL_SECONDS: Final = 30.0
"""How long all of them together may take, on a machine under load."""
STEPS: Final = 12
STEP_SECONDS: Final = 0.1
AWAY_SECONDS: Final = 0.25
"""How long the client stays disconnected after a cut. Events of this time can only come from the server's log."""
TOGETHER: Final = 2
"""How many messages are read between two cuts."""
BESIDE: Final = 8
"""How many calls run at the replica that stays, while the other one is killed."""
NOTICE_SECONDS: Final = 40.0
"""How long the end of a call of a killed replica may take: several leases (`ours.py`)."""
ENDLESS: Final = 1_000
"""The steps of a call that is in work until its replica is killed."""
_MOST_CUTS: Final = 30
_NOT_FOUND: Final = 404


class NotOffered(LimpetError):
    """The server does not have what the act needs."""


class Act(Struct, frozen=True, kw_only=True):
    """One act."""

    name: str
    title: str
    run: Callable[[Stage], Awaitable[str]]


async def parallel(stage: Stage) -> str:
    """Send 200 calls at once on one session, each with a text of its own."""
    lane = await stage.session()
    loop = asyncio.get_running_loop()
    begun, answered = loop.time(), 0

    async def one(number: int) -> str:
        nonlocal answered
        call = _call("echo", text=f"text {number}", seconds=CALL_SECONDS)
        try:
            outcome = await lane.ask(call, id=number, seconds=ALL_SECONDS)
        except LimpetError as error:
            return str(error)
        answered += 1
        stage.say(f"{answered} of {CALLS} calls have ended")
        return judge_answer(outcome, number, f"text {number}")

    faults = Counter(filter(None, await asyncio.gather(*(one(number) for number in range(CALLS)))))
    if faults:
        named = "; ".join(f"{many} × {fault}" for fault, many in faults.most_common(2))
        raise Failed(f"{faults.total()} of {CALLS} calls did not get their answer: {named}")
    return f"{CALLS} calls of {CALL_SECONDS} s each took {loop.time() - begun:.1f} s together; each got its own answer"


async def duplicate(stage: Stage) -> str:
    """While a call runs, send another one with the same id."""
    lane = await stage.session()
    running = asyncio.Event()

    def begins(_: SeenResponse) -> bool:
        running.set()
        return False

    used = 7
    first = asyncio.create_task(lane.ask(_steps("first"), id=used, until=begins))
    first.add_done_callback(lambda _: running.set())
    try:
        await running.wait()
        stage.say(f"the first call with the id {used} runs; a second one is sent")
        second = await lane.ask(_steps("second"), id=used)
        stage.say("the second call has ended; the first one is awaited")
        ended = await first
    finally:
        await _cancel_all(first)
    started = _text(await lane.ask(_call("started"))).split()
    return judge_duplicate(ended, second, used, ran="second" in started)


async def cut(stage: Stage) -> str:
    """Cut the connection of a call again and again, and resume its stream with Last-Event-ID."""
    lane = await stage.session()
    outcome = await lane.ask(_steps("all"), until=_together)
    messages, cuts = _messages(outcome), 0
    last = _last_id(outcome)
    while not outcome.answers and cuts < _MOST_CUTS:
        cuts += 1
        stage.say(f"cut {cuts}: {len(messages)} of {STEPS + 1} messages so far")
        if not last:
            raise NotOffered("events have no ids, so a stream cannot be resumed")
        await asyncio.sleep(AWAY_SECONDS)
        outcome = await lane.peer.send("GET", lane.get_headers(last), until=_together)
        if not outcome.is_ok or outcome.kind != EVENT_STREAM or not _messages(outcome):
            raise Failed(
                f"after cut {cuts}, with {len(messages)} of {STEPS + 1} messages, the GET got {outcome}"
            )
        messages += _messages(outcome)
        last = _last_id(outcome) or last
    return f"{judge_stream(messages)} through {cuts} cuts"


async def replicas(stage: Stage) -> str:
    """Use a session at two replicas and kill the one where a call of it runs."""
    here = await stage.session()
    there = stage.elsewhere(here)
    counted = [_text(await here.ask(_call("bump")))]
    other = await there.ask(_call("bump"))
    counted.append(_text(other))
    texts = [f"beside {number}" for number in range(BESIDE)]
    running = asyncio.Event()

    def begins(outcome: SeenResponse) -> bool:
        if _messages(outcome):
            running.set()
        return False

    lost = asyncio.create_task(
        here.ask(_steps("lost", many=ENDLESS), id="lost", until=begins, seconds=NOTICE_SECONDS)
    )
    lost.add_done_callback(lambda _: running.set())
    beside = [
        asyncio.create_task(there.ask(_call("echo", text=text, seconds=1.0), id=text)) for text in texts
    ]
    try:
        await running.wait()
        stage.say("a call runs at each replica; the first one is killed")
        await stage.kill_first()
        cut_off = await lost
        if other.status == _NOT_FOUND:
            raise NotOffered(
                f"no shared sessions: the other replica answered 404; the call of the killed replica got {len(cut_off.answers)} answers"
            )
        stage.say("the first one is dead; the call is resumed at the other one")
        resumed = await there.peer.send("GET", there.get_headers(_last_id(cut_off)), seconds=NOTICE_SECONDS)
        outcomes = await asyncio.gather(*beside)
    finally:
        await _cancel_all(lost, *beside)
    faults = [judge_answer(outcome, text, text) for outcome, text in zip(outcomes, texts, strict=True)]
    counted.append(_text(await there.ask(_call("bump"))))
    said = judge_replicas([*cut_off.answers, *resumed.answers], faults, counted)
    return f"after {resumed.seconds:.1f} s {said}"


ACTS: Final[tuple[Act, ...]] = (
    Act(name="parallel", title=f"{CALLS} calls at once on one session", run=parallel),
    Act(name="duplicate", title="An id in flight is used again", run=duplicate),
    Act(name="cut", title="A stream is cut and resumed", run=cut),
    Act(name="replicas", title="Two replicas, one is killed", run=replicas),
)


# Judges


def judge_answer(outcome: SeenResponse, used: Any, text: str) -> str:
    """Return the fault of the answer to a call; empty if it is its own answer, once."""
    if len(outcome.answers) > 1:
        return f"{len(outcome.answers)} answers"
    if not outcome.answers or not outcome.is_ok or outcome.code is not None:
        return str(outcome)
    if outcome.answers[0].get("id") != used:
        return "an answer with another id"
    if outcome.result.get("isError"):
        return f"the failed result {_text(outcome)[:60]!r}"
    return "" if _text(outcome) == text else "the answer of another call"


def judge_duplicate(first: SeenResponse, second: SeenResponse, used: Any, *, ran: bool) -> str:
    """Both get their own answers, or the second is refused and does not run.

    Raises:
        Failed: something else happened.
    """
    faults = [judge_answer(first, used, "first"), judge_answer(second, used, "second")]
    if not any(faults):
        return "both calls ran, and each got its own answer"
    if not faults[0] and second.is_refusal and not ran:
        return f"the second call got {second} and did not run; the first got its own answer"
    shown = [fault or "its own answer" for fault in faults]
    raise Failed(
        f"the first call got {shown[0]}; the second got {shown[1]} and {'ran' if ran else 'did not run'}"
    )


def judge_stream(messages: Sequence[Any]) -> str:
    """Every step of `steps` comes once and in order, then one answer.

    Raises:
        Failed: something else came.
    """
    steps = [one["params"]["progress"] for one in messages if one.get("method") == "notifications/progress"]
    answers = [one for one in messages if "method" not in one]
    expected = list(range(1, STEPS + 1))
    if steps == expected and len(answers) == 1 and "result" in answers[0] and messages[-1] is answers[0]:
        return f"{len(messages)} messages, none lost, none twice,"
    lost, twice = len(set(expected) - set(steps)), len(steps) - len(set(steps))
    order = "" if steps == sorted(steps) else ", not in order"
    raise Failed(f"{lost} of {STEPS} steps were lost, {twice} came twice{order}; {len(answers)} answers came")


def judge_replicas(answers: Sequence[Any], faults: Sequence[str], counted: Sequence[str]) -> str:
    """The call of a killed replica ends with one error, the others are answered, and the session counts on.

    Args:
        answers: of the call at the killed replica.
        faults: of the calls at the other replica; empty texts if there are none.
        counted: by a counter of the session: once at each replica, and once after the kill.

    Raises:
        Failed: something else happened.
    """
    codes = [(answer.get("error") or {}).get("code") for answer in answers]
    if codes != [OUTCOME_UNKNOWN]:
        raise Failed(
            f"the call of the killed replica got {len(answers)} answers ({codes}) instead of the error {OUTCOME_UNKNOWN}"
        )
    if wrong := [fault for fault in faults if fault]:
        raise Failed(f"{len(wrong)} of {len(faults)} calls at the other replica got {wrong[0]}")
    if list(counted) != ["1", "2", "3"]:
        shown = ", ".join(one or "unknown" for one in counted)
        raise Failed(f"the counter of the session was {shown} instead of 1, 2, 3")
    return (
        f"the call of the killed replica got one error ({OUTCOME_UNKNOWN}, outcome unknown); {len(faults)} calls at the other "
        "replica were answered, and the session went on there"
    )


async def _cancel_all(*tasks: "asyncio.Task[SeenResponse]") -> None:
    """Cancel the tasks that have not ended, and wait for all."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# Messages


def _call(tool: str, **arguments: Any) -> Question:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": f"{tool} {arguments}"}}
    return Question("tools/call", params, "content")


def _steps(text: str, many: int = STEPS) -> Question:
    return _call("steps", text=text, count=many, seconds=STEP_SECONDS)


def _messages(outcome: SeenResponse) -> list[Any]:
    return [event.message for event in outcome.events if isinstance(event.message, dict)]


def _together(outcome: SeenResponse) -> bool:
    return len(_messages(outcome)) >= TOGETHER


def _last_id(outcome: SeenResponse) -> str:
    return next((event.id for event in reversed(outcome.events) if event.id), "")


def _text(outcome: SeenResponse) -> str:
    """Return the text of a result; empty if there is none."""
    result = outcome.result
    blocks = result.get("content") if isinstance(result, dict) else None
    return "".join(str(one.get("text", "")) for one in blocks or () if isinstance(one, dict))
