"""What is right and wrong about the answer to a request, for all probes."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from limpet.checking.ground import Ground, ProbeFailed
from limpet.checking.lane import Lane, Question
from limpet.checking.seen_response import SeenResponse
from limpet.errors import INVALID_REQUEST


def fault(outcome: SeenResponse, used: Any, question: Question) -> str:
    """Return the fault of the response to a request; empty if it has none."""
    answers = outcome.answers
    if len(answers) > 1:
        return f"{question.method} got {len(answers)} answers"
    is_failed_call = question.is_call and outcome.is_refusal and outcome.code != INVALID_REQUEST
    if not answers or not (outcome.is_ok or is_failed_call):
        return f"{question.method} got {outcome}"
    [answer] = answers
    if answer.get("id") != used or type(answer.get("id")) is not type(used):
        return f"{question.method} got an answer with the id {answer.get('id')!r} instead of {used!r}"
    if "error" in answer:
        return "" if is_failed_call else f"{question.method} got {outcome}"
    return "" if question.fits(answer["result"]) else f"{question.method} got the answer of another request"


def raise_first(faults: Sequence[str], total: int, note: str = "") -> None:
    """Raise the most frequent faults, if there are any.

    Raises:
        ProbeFailed: one of the texts is not empty.
    """
    found = [one for one in faults if one]
    if found:
        counted = "; ".join(f"{many} × {one}" for one, many in Counter(found).most_common(3))
        raise ProbeFailed(f"{len(found)} of {total} requests {note}".rstrip() + f" failed: {counted}")


async def answers_still(lane: Lane) -> float:
    """Send one plain request; return the seconds until its answer.

    Raises:
        ProbeFailed: it is not answered.
    """
    question = lane.questions()[0]
    used = lane.next_id()
    outcome = await lane.ask(question, id=used)
    if found := fault(outcome, used, question):
        raise ProbeFailed(f"afterwards, {question.method} on {place(lane)} failed: {found}")
    return outcome.seconds


def in_each_era(one: Callable[[Ground, Lane], Awaitable[str]]) -> Callable[[Ground], Awaitable[str]]:
    """Make a probe that runs in each era that the server speaks.

    It returns the text of the first, and names the era of a failure.
    """

    async def probe(ground: Ground) -> str:
        said = ""
        lanes = await ground.lanes()
        for lane in lanes:
            try:
                text = await one(ground, lane)
            except ProbeFailed as error:
                raise ProbeFailed(f"{lane.version}: {error}" if len(lanes) > 1 else str(error)) from None
            said = f"{said}; the same in {lane.version}" if said else text
        return said

    probe.__doc__ = one.__doc__
    return probe


def place(lane: Lane) -> str:
    """Return where the requests of a lane go."""
    return "one session" if lane.session else "one address"
