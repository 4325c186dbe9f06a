"""The two streams of a run of a hosted object.

A request waits for the run as itself: it becomes a message only when the run takes it, and it leaves when it ends. So
nothing waits here that belongs to an ended request (law 9: the engine charges a request only while it runs). Its writer
does not wait: the link waits for the answer. Any other message waits together with its writer.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Self

from limpet.errors import NotSent
from limpet.upstream.pending import OutgoingRequest

Delivery = tuple[contextvars.Context, Any]
"""A message for the run, and the context for its handler."""
Waiting = OutgoingRequest | tuple[asyncio.Future[bool], Delivery]


class _Stream:
    """The methods that both streams of a run have."""

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()


class RunInput(_Stream):
    """The stream that the run reads.

    `deliver` makes the message of a request; it returns None for one that the framework does not accept.
    """

    def __init__(
        self, deliver: Callable[[OutgoingRequest], Delivery | None], end_of_stream: type[Exception]
    ) -> None:
        self.last_context: contextvars.Context | None = None
        """The context for the handler of the last message; `mcp` 2 looks for it."""
        self.is_closed: bool = False
        self._deliver = deliver
        self._end_of_stream = end_of_stream
        self._waiting: dict[object, Waiting] = {}
        self._more: asyncio.Future[None] | None = None
        """While the run waits for a message."""

    def put(self, request: OutgoingRequest) -> None:
        """Let the run take a request."""
        self._waiting[request] = request
        self._wake()

    def forget(self, request: OutgoingRequest) -> None:
        """Forget a request that has ended."""
        self._waiting.pop(request, None)

    async def write(self, delivery: Delivery) -> bool:
        """Wait until the run takes a message; return False if it ends before."""
        if self.is_closed:
            return False
        taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[taken] = taken, delivery
        self._wake()
        try:
            return await taken
        finally:
            self._waiting.pop(taken, None)

    def close(self) -> None:
        """End the stream, for both sides. What waits was not executed (law 12)."""
        self.is_closed = True
        for one in self._waiting.values():
            if isinstance(one, OutgoingRequest):
                one.fail(NotSent("the server has ended before it took the request"))
            elif not one[0].done():
                one[0].set_result(False)
        self._waiting.clear()
        self._wake()

    async def receive(self) -> Any:
        """Return the next message.

        Raises:
            EndOfStream: of anyio, if there will be no other message.
        """
        while True:
            while self._waiting:
                waiting = self._waiting.pop(next(iter(self._waiting)))
                delivery = self._taken(waiting)
                if delivery is not None:
                    self.last_context, message = delivery
                    return message
            if self.is_closed:
                raise self._end_of_stream
            self._more = asyncio.get_running_loop().create_future()
            try:
                await self._more
            finally:
                self._more = None

    def _taken(self, waiting: Waiting) -> Delivery | None:
        if isinstance(waiting, OutgoingRequest):
            return self._deliver(waiting)
        taken, delivery = waiting
        if taken.done():
            # Its writer has given up.
            return None
        taken.set_result(True)
        return delivery

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except self._end_of_stream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self.close()


class RunOutput(_Stream):
    """The stream that the run writes."""

    def __init__(self, take: Callable[[Any], Awaitable[None]]) -> None:
        self._take = take

    async def send(self, item: Any) -> None:
        """Take a message of the run, in the task that writes it."""
        await self._take(item)
