"""Probes of requests: each POST gets its own answer, for every id, also with many at once."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from holdfast.checking.ground import Failed, Ground
from holdfast.checking.lane import Lane, Question
from holdfast.checking.peer import Outcome

PARALLEL: Final = 24
ROUNDS: Final = 6
BURST: Final = 8
REUSED: Final = 5
IDS: Final[tuple[Any, ...]] = (
    0,
    7,
    -7,
    2**53 - 1,
    "7",
    "a-b/c d",
    "ü",
    "0191f0c2-5c5e-7b4b-8e0a-3f1d2c4b5a69",
)
"""Valid ids, of both types; 7 and "7" are in it."""
_MOMENT: Final = 0.01
_ONE_BY_ONE: Final = (
    "they were answered one after another: to be sure, name a tool with --tool that takes 0.1 s or longer"
)
BAD_IDS: Final[tuple[Any, ...]] = (None, True, 1.5, [], {})


async def parallel(ground: Ground) -> str:
    """Send many requests of several kinds at once, each with an id of its own."""
    lane = await ground.lane()
    sent = _mixed(ground.questions(lane), PARALLEL, 1000)
    outcomes = await asyncio.gather(*(lane.ask(question, id=number) for number, question in sent))
    wrong = [
        _fault(outcome, number, question) for outcome, (number, question) in zip(outcomes, sent, strict=True)
    ]
    _raise_first(wrong, PARALLEL)
    return f"{PARALLEL} requests at once on {_place(lane)}: each POST got its own answer"


async def duplicate_ids(ground: Ground) -> str:
    """Send several requests with the same id at once. Each must get its own answer, or be refused."""
    lane = await ground.lane()
    questions = ground.questions(lane)
    refused, overlapped = 0, False
    for number in range(ROUNDS):
        used = 2000 + number
        sent = [question for _, question in _mixed(questions[::-1], BURST, 0)]
        ends, outcomes = zip(
            *await asyncio.gather(*(_staggered(lane, used, one, at) for at, one in enumerate(sent))),
            strict=True,
        )
        overlapped = overlapped or min(ends[1:]) < ends[0]
        pairs = list(zip(outcomes, sent, strict=True))
        kept = [(outcome, question) for outcome, question in pairs if not outcome.is_refusal]
        refused += len(pairs) - len(kept)
        _raise_first(
            [_fault(outcome, used, question) for outcome, question in kept], BURST, "with the same id"
        )
        if not kept:
            raise Failed(
                f"all of {BURST} requests with the same id were refused; one of them is the first, and valid"
            )
    total = ROUNDS * BURST
    said = f"{total} requests in {ROUNDS} groups with one id each: {total - refused} got their own answer"
    if refused:
        return f"{said}, {refused} were refused"
    return said if overlapped else f"{said}; perhaps {_ONE_BY_ONE}"


async def _staggered(lane: Lane, used: int, question: Question, at: int) -> tuple[float, Outcome]:
    """Send a request and return the time of its end. The first one begins before the others, so it is in work when they arrive."""
    if at:
        await asyncio.sleep(_MOMENT)
    outcome = await lane.ask(question, id=used)
    return asyncio.get_running_loop().time(), outcome


async def reused_id(ground: Ground) -> str:
    """Send one request after another with the same id."""
    lane = await ground.lane()
    question = lane.questions()[0]
    for number in range(REUSED):
        outcome = await lane.ask(question, id=1)
        if fault := _fault(outcome, 1, question):
            raise Failed(f"request {number + 1} with an id whose request is answered: {fault}")
    return f"{REUSED} requests one after another with the same id were answered"


async def id_types(ground: Ground) -> str:
    """Send valid ids of both types, 7 and "7" at the same time."""
    lane = await ground.lane()
    questions = lane.questions()
    sent = [(one, questions[at % len(questions)]) for at, one in enumerate(IDS)]
    outcomes = await asyncio.gather(*(lane.ask(question, id=one) for one, question in sent))
    for outcome, (one, question) in zip(outcomes, sent, strict=True):
        if fault := _fault(outcome, one, question):
            raise Failed(f"the id {one!r}: {fault}")
    return f'{len(IDS)} ids, numbers and texts, came back as they were sent; 7 and "7" stayed two'


async def bad_ids(ground: Ground) -> str:
    """Send ids that the specification forbids. None of them may be answered with a result."""
    lane = await ground.lane()
    question = lane.questions()[0]
    for one in BAD_IDS:
        headers = lane.headers(question.method, question.params)
        outcome = await lane.peer.send("POST", headers, lane.body(one, question.method, question.params))
        if outcome.result is not None or not (outcome.is_refusal or outcome.is_ok):
            raise Failed(f"the id {one!r} got {outcome}")
    await answers_still(lane)
    return f"{len(BAD_IDS)} invalid ids got no result, and the server answers other requests"


async def cancel(ground: Ground) -> str:
    """Cancel a tool call, and an id that does not exist. The session must continue."""
    call = ground.call()
    lane = await ground.session()
    task = asyncio.create_task(lane.ask(call, id=77))
    await asyncio.sleep(0.05)
    for target in (77, 99_999):
        params = {"requestId": target, "reason": "holdfast check"}
        outcome = await lane.notify("notifications/cancelled", params)
        if not outcome.is_ok:
            task.cancel()
            raise Failed(f"notifications/cancelled for the id {target} got {outcome}")
    ended = await task
    if ended.status and not ended.is_ok and not ended.is_refusal:
        raise Failed(f"the cancelled call got {ended}")
    await answers_still(lane)
    again = await lane.ask(lane.questions()[0], id=77)
    if fault := _fault(again, 77, lane.questions()[0]):
        raise Failed(f"the id of a cancelled call cannot be used again: {fault}")
    said = "stayed open without an answer" if ended.ended == "late" else f"ended with {ended}"
    return f"the cancelled call {said}; the session continued"


async def answers_still(lane: Lane) -> None:
    """Send one plain request.

    Raises:
        Failed: it is not answered.
    """
    question = lane.questions()[0]
    used = lane.next_id()
    if fault := _fault(await lane.ask(question, id=used), used, question):
        raise Failed(f"afterwards, {question.method} on {_place(lane)} failed: {fault}")


def _fault(outcome: Outcome, used: Any, question: Question) -> str:
    """Return what is wrong with the response to a request; empty if it is right."""
    answers = outcome.answers
    if len(answers) > 1:
        return f"{question.method} got {len(answers)} answers"
    if not answers or not outcome.is_ok:
        return f"{question.method} got {outcome}"
    [answer] = answers
    if answer.get("id") != used or type(answer.get("id")) is not type(used):
        return f"{question.method} got an answer with the id {answer.get('id')!r} instead of {used!r}"
    if "error" in answer:
        return "" if question.method == "tools/call" else f"{question.method} got {outcome}"
    return "" if question.fits(answer["result"]) else f"{question.method} got the answer of another request"


def _raise_first(faults: list[str], total: int, note: str = "") -> None:
    found = [fault for fault in faults if fault]
    if found:
        counted = "; ".join(f"{many} × {fault}" for fault, many in Counter(found).most_common(3))
        raise Failed(f"{len(found)} of {total} requests {note}".rstrip() + f" failed: {counted}")


def _mixed(questions: Sequence[Question], many: int, first: int) -> list[tuple[int, Question]]:
    """Return requests of all kinds in turn, with ids."""
    return [(first + at, questions[at % len(questions)]) for at in range(many)]


def _place(lane: Lane) -> str:
    return "one session" if lane.session else "one address"
