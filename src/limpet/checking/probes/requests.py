"""Probes of requests: each POST gets its own answer, for every id, also with many at once."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from limpet.checking.ground import Ground, ProbeFailed
from limpet.checking.lane import Lane, Question
from limpet.checking.probes.answers import answers_still, fault, in_each_era, place, raise_first
from limpet.checking.seen_response import SeenResponse

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
BAD_IDS: Final[tuple[Any, ...]] = (None, True, [], {})
"""Ids that JSON-RPC or MCP forbids."""
FRACTION: Final = 1.5
"""An id that JSON-RPC discourages. A result is tolerated if it has this id."""
_CANCELLED: Final = 77
_UNKNOWN: Final = 99_999
_CANCEL_SECONDS: Final = 2.0
"""How long the response to a cancelled call is read. The specification wants no answer, so it may stay open."""


@in_each_era
async def parallel(ground: Ground, lane: Lane) -> str:
    """Send many requests of several kinds at once, each with an id of its own."""
    sent = mixed(ground.questions(lane), PARALLEL, 1000)
    seconds = ground.seconds_for(PARALLEL)
    outcomes = await asyncio.gather(
        *(lane.ask(question, id=number, seconds=seconds) for number, question in sent)
    )
    wrong = [
        fault(outcome, number, question) for outcome, (number, question) in zip(outcomes, sent, strict=True)
    ]
    raise_first(wrong, PARALLEL)
    return f"{PARALLEL} requests at once on {place(lane)}: each POST got its own answer"


async def duplicate_ids(ground: Ground) -> str:
    """Send several requests with the same id at once. Each must get its own answer, or be refused."""
    lane = await ground.initialized()
    questions = ground.questions(lane)[::-1]
    refused, overlapped = 0, False
    for number in range(ROUNDS):
        outcomes, was_overlap = await _burst(ground, lane, 2000 + number, questions)
        overlapped = overlapped or was_overlap
        kept = [(outcome, question) for outcome, question in outcomes if not outcome.is_refusal]
        refused += BURST - len(kept)
        wrong = [fault(outcome, 2000 + number, question) for outcome, question in kept]
        raise_first(wrong, BURST, "with the same id")
        if not kept:
            raise ProbeFailed(
                f"all of {BURST} requests with the same id were refused; one of them is the first, and valid"
            )
    total = ROUNDS * BURST
    said = f"{total} requests in {ROUNDS} groups with one id each: {total - refused} got their own answer"
    if refused:
        return f"{said}, {refused} were refused"
    return said if overlapped else f"{said}; perhaps {_ONE_BY_ONE}"


async def shared_ids(ground: Ground) -> str:
    """Send several requests with the same id at once without a session, as different clients do.

    Each must get its own answer.
    """
    lane = await ground.without_session()
    questions = ground.questions(lane)[::-1]
    overlapped = False
    for number in range(ROUNDS // 2):
        outcomes, was_overlap = await _burst(ground, lane, 3000 + number, questions)
        overlapped = overlapped or was_overlap
        wrong = [fault(outcome, 3000 + number, question) for outcome, question in outcomes]
        raise_first(wrong, BURST, "with the same id")
    said = f"{ROUNDS // 2} groups of {BURST} requests with one id each: each POST got its own answer"
    return said if overlapped else f"{said}; perhaps {_ONE_BY_ONE}"


async def _burst(
    ground: Ground, lane: Lane, used: int, questions: Sequence[Question]
) -> tuple[list[tuple[SeenResponse, Question]], bool]:
    """Send a group of requests with one id; return the outcomes, and whether the first one was in work with others."""
    loop = asyncio.get_running_loop()
    seconds = ground.seconds_for(BURST)

    async def staggered(question: Question, at: int) -> tuple[float, SeenResponse]:
        # The first one begins before the others, so it is in work when they arrive.
        if at:
            await asyncio.sleep(_MOMENT)
        outcome = await lane.ask(question, id=used, seconds=seconds)
        return loop.time(), outcome

    sent = [question for _, question in mixed(questions, BURST, 0)]
    ended = await asyncio.gather(*(staggered(one, at) for at, one in enumerate(sent)))
    overlapped = min(at for at, _ in ended[1:]) < ended[0][0]
    return [(outcome, one) for (_, outcome), one in zip(ended, sent, strict=True)], overlapped


@in_each_era
async def reused_id(_: Ground, lane: Lane) -> str:
    """Send one request after another with the same id."""
    question = lane.questions()[0]
    refused = 0
    for number in range(REUSED):
        outcome = await lane.ask(question, id=1)
        if number and outcome.is_refusal and not lane.is_sessionless:
            refused += 1
        elif found := fault(outcome, 1, question):
            raise ProbeFailed(f"request {number + 1} with an id whose request is answered: {found}")
    if refused:
        return f"an id that was used before was refused {refused} times, as the specification allows; clients that repeat ids fail"
    return f"{REUSED} requests one after another with the same id were answered"


@in_each_era
async def id_types(ground: Ground, lane: Lane) -> str:
    """Send valid ids of both types, 7 and "7" at the same time."""
    questions = [one for one in ground.questions(lane) if not one.is_call]
    sent = [(one, questions[at % len(questions)]) for at, one in enumerate(IDS)]
    outcomes = await asyncio.gather(*(lane.ask(question, id=one) for one, question in sent))
    for outcome, (one, question) in zip(outcomes, sent, strict=True):
        if found := fault(outcome, one, question):
            raise ProbeFailed(f"the id {one!r}: {found}")
    return f'{len(IDS)} ids, numbers and texts, came back as they were sent; 7 and "7" stayed two'


@in_each_era
async def bad_ids(_: Ground, lane: Lane) -> str:
    """Send ids that the specification forbids. None of them may be answered with a result."""
    question = lane.questions()[0]
    for one in (*BAD_IDS, FRACTION):
        headers = lane.headers(question.method, question.params)
        outcome = await lane.peer.send("POST", headers, lane.body(one, question.method, question.params))
        is_same = one == FRACTION and outcome.answers and outcome.answers[0].get("id") == FRACTION
        if outcome.is_crash or (outcome.result is not None and not is_same):
            raise ProbeFailed(f"the id {one!r} got {outcome}")
    await answers_still(lane)
    return f"{len(BAD_IDS)} invalid ids got no result, and the server answers other requests"


async def cancel(ground: Ground) -> str:
    """Cancel a tool call, and an id that does not exist. The session must continue."""
    call = ground.call()
    lane = await ground.session()
    task = asyncio.create_task(lane.ask(call, id=_CANCELLED, seconds=_CANCEL_SECONDS))
    try:
        await asyncio.sleep(0.05)
        await _cancel(lane, _CANCELLED)
        await _cancel(lane, _UNKNOWN)
        ended = await task
    finally:
        task.cancel()
    if ended.status and ended.is_crash:
        raise ProbeFailed(f"the cancelled call got {ended}")
    await answers_still(lane)
    question = lane.questions()[0]
    again = await lane.ask(question, id=_CANCELLED)
    if not again.is_refusal and (found := fault(again, _CANCELLED, question)):
        raise ProbeFailed(f"the id of a cancelled call was used again: {found}")
    said = "stayed open without an answer" if ended.ended == "late" else f"ended with {ended}"
    return f"the cancelled call {said} after {ended.seconds:.1f} s; the session continued"


async def _cancel(lane: Lane, target: int) -> None:
    params = {"requestId": target, "reason": "limpet check"}
    outcome = await lane.notify("notifications/cancelled", params)
    if not outcome.is_ok and (target == _CANCELLED or not outcome.is_refusal):
        raise ProbeFailed(f"notifications/cancelled for the id {target} got {outcome}")


def mixed(questions: Sequence[Question], many: int, first: int) -> list[tuple[int, Question]]:
    """Return requests of all kinds in turn, with ids."""
    return [(first + at, questions[at % len(questions)]) for at in range(many)]
