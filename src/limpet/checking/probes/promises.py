"""Probes of what a server promises beyond the specification: hand-over, and idempotency keys.

A server that promises neither is not at fault: then they do not apply.
"""

import asyncio
from typing import Any, Final

from limpet.checking.ground import Ground, NotApplicable, ProbeFailed
from limpet.checking.lane import Lane, Question
from limpet.checking.probes.answers import fault
from limpet.errors import INVALID_REQUEST
from limpet.ports import SystemRandom
from limpet.protocol.hand_over import Ticket, new_ticket, ticket_of
from limpet.protocol.idempotency import KEY, KEYS_EXTENSION

_LONGEST: Final = 20.0
"""How long the probe follows a call that was handed over, in seconds."""


async def handed_over(ground: Ground) -> str:
    """Call the tool. If it is answered with a ticket, delete the session, and collect the result in a new one."""
    call = ground.answered_call()
    first = await ground.session()
    outcome = await first.ask(call)
    ticket = ticket_of(outcome.result)
    if ticket is None:
        raise NotApplicable(
            "the call was answered with its result: the server hands no call over, or this tool is too fast"
        )
    await first.delete()
    lane = await ground.session()
    unknown = await lane.ask(_collect(Ticket(new_ticket(SystemRandom()), ticket.collect)))
    result = unknown.result if isinstance(unknown.result, dict) else {}
    if not unknown.is_refusal and result.get("isError") is not True:
        raise ProbeFailed(f"a ticket that does not exist got {unknown} instead of an error")
    return await _follow(lane, ticket)


async def _follow(lane: Lane, ticket: Ticket) -> str:
    now = asyncio.get_running_loop().time
    deadline, question = now() + _LONGEST, _collect(ticket)
    while True:
        used = lane.next_id()
        outcome = await lane.ask(question, id=used)
        if (found := fault(outcome, used, question)) or "error" in outcome.answers[0]:
            raise ProbeFailed(
                f"the result of a call that was handed over was not collected: {found or outcome}"
            )
        if ticket_of(outcome.result) is None:
            return "a call was answered with a ticket; its session was deleted, and its result was collected in another one"
        if now() > deadline:
            return f"a call was answered with a ticket; its session was deleted, and it still runs {_LONGEST:g} s later"


def _collect(ticket: Ticket) -> Question:
    arguments: dict[str, Any] = {"ticket": ticket.ticket, "wait": 1}
    return Question("tools/call", {"name": ticket.collect, "arguments": arguments}, "content")


async def idempotency_keys(ground: Ground) -> str:
    """Send a call twice with one idempotency key, and the key with other arguments."""
    call = ground.answered_call()
    lane = await ground.without_session()
    extensions = lane.capabilities.get("extensions")
    if not isinstance(extensions, dict) or KEYS_EXTENSION not in extensions:
        raise NotApplicable(f"the server does not declare the extension {KEYS_EXTENSION}")
    meta = {KEY: SystemRandom().token(16)}
    keyed = call._replace(params={**call.params, "_meta": meta})
    answers: list[Any] = []
    for _ in range(2):
        used = lane.next_id()
        outcome = await lane.ask(keyed, id=used)
        if found := fault(outcome, used, keyed):
            raise ProbeFailed(found)
        answers.append({**outcome.answers[0], "id": 0})
    if answers[0] != answers[1]:
        raise ProbeFailed("a call that was sent again with its key got another answer: it ran twice")
    other = {**call.params["arguments"], "limpet-check": "other"}
    outcome = await lane.ask(keyed._replace(params={**keyed.params, "arguments": other}))
    if outcome.code != INVALID_REQUEST:
        raise ProbeFailed(
            f"a key that was used for other arguments got {outcome} instead of {INVALID_REQUEST}"
        )
    return "a call that was sent again with its key got the same answer; the key with other arguments was refused"
