"""A message that a rate counts: it is served, it slows its connection, or its requests are refused."""

import asyncio
from collections.abc import Awaitable, Callable

from limpet.engine.caller import Caller
from limpet.engine.rates import RateLimiter, unrefused
from limpet.errors import RateLimited
from limpet.fronts.http.write.answer import Answer, refused_unstarted
from limpet.fronts.http.write.response import WaitingResponse
from limpet.wire.jsonrpc import Message, Request

Found = Answer | Awaitable[Answer | None] | None
"""The answer to a request, or the wait for it; None: it is answered."""
Serve = Callable[[Message | list[Message]], Found]


def rated(
    rates: RateLimiter,
    message: Message | list[Message],
    caller: Caller,
    response: WaitingResponse,
    serve: Serve,
) -> Found:
    """Count a message, and serve it."""
    try:
        seconds = rates.check(message, caller, response.address)
    except RateLimited as over:
        refusal = refused_unstarted(over, message.id if isinstance(message, Request) else None)
        others = unrefused(message)
        return _slowed(0.0, others, serve, instead=refusal) if others else refusal
    return _slowed(seconds, message, serve) if seconds else serve(message)


async def _slowed(
    seconds: float, message: Message | list[Message], serve: Serve, *, instead: Answer | None = None
) -> Answer | None:
    """Serve a message, and read nothing further from its connection for some time. `instead`: the answer of a batch."""
    # An answer or a cancellation has its effect at once, and its 202 is late. A request waits: its answer may be a
    # stream.
    is_early = isinstance(message, Request | list)
    if is_early:
        await asyncio.sleep(seconds)
    answer = await awaited(serve(message))
    if not is_early:
        await asyncio.sleep(seconds)
    return instead or answer


async def awaited(found: Found) -> Answer | None:
    """Wait for an answer."""
    return await found if isinstance(found, Awaitable) else found
