"""A conversation over one pipe that carries everything both ways: a child process, or a server in this process."""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.client.calls import Call
from holdfast.client.link import Receiver
from holdfast.errors import Broken, LinkError, NotSent
from holdfast.ports import Observer
from holdfast.protocol.sessionless import VERSION
from holdfast.wire.jsonrpc import notification_message, request_message


class Pipe(Protocol):
    """A transport of whole messages. It moves bytes and decides nothing."""

    async def read(self) -> bytes:
        """Return the next message; b"" once there will be no more."""
        ...

    async def write(self, message: bytes) -> None:
        """Write a message; waits while the other side is behind.

        Raises:
            Broken: nobody reads any more.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the other side, and leave nothing of it behind."""
        ...


class PipeLink:
    """One pipe. It is lost when its other side is gone."""

    def __init__(self, pipe: Pipe, receiver: Receiver, observer: Observer) -> None:
        self.version = VERSION
        self.is_modern = True
        self.lost: bool = False
        self._pipe = pipe
        self._receiver = receiver
        self._observer = observer
        self._farewells: set[asyncio.Task[None]] = set()
        self._reading = asyncio.get_running_loop().create_task(self._read())

    def __repr__(self) -> str:
        return f"<PipeLink {self.version}{' lost' if self.lost else ''}, {self._receiver.calls}>"

    async def request(self, call: Call, headers: Mapping[str, str]) -> Any:  # noqa: ARG002 - a pipe has none
        """Send a call and return its result; see `Link`. Cancelled, it tells the server so."""
        if self.lost:
            raise NotSent(f"the server has closed the connection; {self._words}")
        self._receiver.calls.add(call)
        try:
            await self._pipe.write(request_message(call.id, call.method, call.params))
            return await call.answer
        except asyncio.CancelledError:
            if call.method != "initialize" and not self.lost:
                self._tell_cancelled(call)
            raise
        finally:
            self._receiver.calls.remove(call)

    async def notify(self, message: bytes) -> None:
        """Send a notification; see `Link`."""
        if self.lost:
            raise NotSent("the server has closed the connection")
        await self._pipe.write(message)

    async def answer(self, message: bytes) -> None:
        """Send the answer to a request of the server's."""
        await self.notify(message)

    async def settled(self) -> None:
        """Nothing more to do: everything comes by the one pipe."""

    async def aclose(self, *, goodbye: bool = True) -> None:  # noqa: ARG002 - closing says it
        """Close the pipe, which ends the conversation."""
        self.lost = True
        self._receiver.forget(self)
        for task in self._farewells:
            task.cancel()
        await self._pipe.aclose()
        self._reading.cancel()
        await asyncio.wait({self._reading})

    async def _read(self) -> None:
        try:
            while message := await self._pipe.read():
                self._receiver.take(self, message)
        except LinkError as error:
            self._observer.note("client.pipe_broke", error=error)
        finally:
            self.lost = True
            self._receiver.forget(self)
            words = self._words
            self._receiver.calls.fail_all(
                lambda call: Broken(f"the server closed the connection during {call.method}; {words}")
            )

    @property
    def _words(self) -> str:
        words: str = getattr(self._pipe, "last_words", "it is a server of this process")
        return words

    def _tell_cancelled(self, call: Call) -> None:
        params = {"requestId": call.id, "reason": "cancelled by the caller"}

        async def tell() -> None:
            try:
                await self._pipe.write(notification_message("notifications/cancelled", params))
            except LinkError as error:
                self._observer.note("client.farewell_failed", error=error)

        task = asyncio.get_running_loop().create_task(tell())
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)
