"""Rounds of input: a handler that returned `InputRequired` is called again with the client's answers.

A client of 2026-07-28 receives an `input_required` result, and its retry is the next round. In a session or a
task the client gets the questions as asks, and the next round runs within the same request. The same handler
works in both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from limpet.core.exchange import ExchangeState
from limpet.core.rounds import Asked, Given
from limpet.errors import INTERNAL_ERROR, McpError, UrlElicitationRequired
from limpet.protocol.types import InputRequiredResult
from limpet.protocol.versions import SESSIONLESS
from limpet.server.context.asks import PageAsk
from limpet.server.functions.input_required import InputRequired
from limpet.server.host import Host

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange

MAX_ROUNDS: Final = 16
"""How often a handler may return `InputRequired` within one request of a session."""

Again = Callable[[], Awaitable[object]]
"""Calls the handler again, from its start."""


async def run_input_rounds(value: object, exchange: Exchange, server: Host, again: Again) -> object:
    """Return the handler's last value, or the result that asks a client of 2026-07-28 for input.

    Raises:
        CapabilityMissing: the client did not declare a capability that the questions need.
        McpError: the handler asked in more than `MAX_ROUNDS` rounds.
    """
    for _ in range(MAX_ROUNDS):
        if not isinstance(value, InputRequired):
            return value
        wanted = {name: _asked(item, exchange, server) for name, item in value.requests.items()}
        if exchange.session.revision is SESSIONLESS and exchange.state is not ExchangeState.TASK:
            state = server.engine.sessionless.seal(exchange, value.state)
            return InputRequiredResult(input_requests=dict(wanted) or None, request_state=state)
        exchange.given = Given(value.state, await _answers(exchange, wanted))
        value = await again()
    raise McpError(INTERNAL_ERROR, f"the handler asked for input in more than {MAX_ROUNDS} rounds")


def _asked(item: Any, exchange: Exchange, server: Host) -> Asked:
    mint = server.engine.random.token
    return Asked(item.method, item.params(exchange.session, lambda: mint(12)))


async def _answers(exchange: Exchange, wanted: dict[str, Asked]) -> dict[str, Any]:
    import asyncio  # noqa: PLC0415 - only a server that runs needs it

    async with asyncio.TaskGroup() as group:
        asks = {
            name: group.create_task(exchange.ask(asked.method, asked.params, key=name))
            for name, asked in wanted.items()
        }
    return {name: task.result() for name, task in asks.items()}


def open_pages_first(error: UrlElicitationRequired, exchange: Exchange) -> InputRequired:
    """Return the pages of the error as an `InputRequired`: 2026-07-28 has no such error.

    Raises:
        UrlElicitationRequired: the client has a session; there the error is the answer.
    """
    if exchange.session.revision is not SESSIONLESS:
        raise error
    pages: Any = error.data
    return InputRequired(
        requests={
            page.elicitation_id: PageAsk(page.message, page.url, page.elicitation_id)
            for page in pages["elicitations"]
        }
    )
