"""A link over a duplex: every message, in both directions, goes through it."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

from limpet.errors import Broken, LineTooLong, LinkError, NotSent
from limpet.ports import Observer
from limpet.protocol.sessionless import VERSION
from limpet.upstream.incoming import UNSENT
from limpet.upstream.link import EndReason, LinkEnd, Receiver
from limpet.upstream.pending import OutgoingRequest
from limpet.wire.jsonrpc import request_message
from limpet.wire.unreadable import recognise_by_edges


class ServerDuplex(Protocol):
    """A transport of whole messages. It moves bytes and decides nothing."""

    @property
    def exit_status(self) -> int | None:
        """The exit status of the process at the other end; None while it runs, or if there is no process."""

    @property
    def last_words(self) -> str:
        """Details about the other end, for error messages."""

    async def read(self) -> bytes:
        """Return the next message; b"" at the end.

        Raises:
            LineTooLong: a message was over the limit and was skipped.
        """

    async def write(self, message: bytes) -> None:
        """Write a message; wait while the other side does not read.

        Raises:
            Broken: the other side has closed its input.
        """

    async def aclose(self) -> None:
        """Close both directions, and stop the process at the other end."""


class DuplexLink:
    """A link over one duplex. It ends when the other side closes its output, or its input and does not exit."""

    def __init__(self, duplex: ServerDuplex, receiver: Receiver, observer: Observer) -> None:
        self.version = VERSION
        self.is_sessionless = True
        self.lost: bool = False
        self.receiver: Receiver = receiver
        self._duplex = duplex
        self._observer = observer
        self._cancellations: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Task[None] | None = None
        self._reading = asyncio.get_running_loop().create_task(self._read())

    def __repr__(self) -> str:
        return f"<DuplexLink {self.version}{' lost' if self.lost else ''}, {self.receiver.pending}>"

    async def request(self, request: OutgoingRequest) -> Any:
        """Send a request and return its result; see `UpstreamLink`."""
        if self.lost:
            raise NotSent(f"the server has closed the connection; {self._duplex.last_words}")
        self.receiver.pending[request.id] = request
        try:
            sending = self._send(request)
            if sending is not None:
                await sending
            return await request.answer
        except Broken:
            self._stop_deaf()
            raise
        except asyncio.CancelledError as cancelled:
            if request.is_cancellable and not self.lost:
                self._send_cancellation(request.cancellation(cancelled))
            raise
        finally:
            self._forget(request)

    def _send(self, request: OutgoingRequest) -> Awaitable[None] | None:
        """Send a request. If its writer has to wait, return an awaitable for it."""
        return self._duplex.write(request_message(request.id, request.method, request.params))

    def _forget(self, request: OutgoingRequest) -> None:
        self.receiver.pending.remove(request)

    async def notify(self, message: bytes) -> None:
        """Send a notification; see `UpstreamLink`."""
        if self.lost:
            raise NotSent("the server has closed the connection")
        await self._write(message)

    async def answer(self, message: bytes) -> None:
        """Send the response to a request of the server."""
        await self.notify(message)

    async def settled(self) -> None:
        """Do nothing: the duplex carries every message already."""

    async def aclose(self, *, goodbye: bool = True) -> None:  # noqa: ARG002 - closing the duplex is the goodbye
        """Close the duplex, which ends the conversation."""
        self.lost = True
        self.receiver.ended(self, LinkEnd(reason=EndReason.CLOSED))
        for task in self._cancellations:
            task.cancel()
        await self._duplex.aclose()
        self._reading.cancel()
        await asyncio.wait({self._reading})

    async def _write(self, message: bytes) -> None:
        try:
            await self._duplex.write(message)
        except Broken:
            self._stop_deaf()
            raise

    def _stop_deaf(self) -> None:
        """Stop a server that runs, but has closed its input: it cannot receive another request.

        Then `_read` reports the end.

        After an exit `_read` does so too, when it has read the last messages.
        """
        if self._duplex.exit_status is None and not self.lost:
            self.lost = True
            self._stopping = asyncio.get_running_loop().create_task(self._duplex.aclose())

    async def _read(self) -> None:
        try:
            while True:
                try:
                    message = await self._duplex.read()
                except LineTooLong as error:
                    self._skip(error)
                    continue
                if not message:
                    break
                self.receiver.take(self, message)
                # A task that waits for the next one must not hold it: it may have 16 MiB.
                del message
        except LinkError as error:
            self._observer.note("client.link_broke", error=error)
        finally:
            self.lost = True
            end = self._end()
            self.receiver.ended(self, end)
            self.receiver.pending.fail_all(
                lambda request: Broken(
                    f"the server closed the connection during {request.method}; {end.message}"
                )
            )
        # A starter that has crashed may have left the real server running: stop its group now, not at the next request.
        await self._duplex.aclose()

    def _skip(self, error: LineTooLong) -> None:
        """End the request that a message over the limit belongs to."""
        found = recognise_by_edges(error.head, error.tail)
        self._observer.note("client.line_too_long", request=found and found[0])
        self.receiver.refuse(self, found, error)

    def _end(self) -> LinkEnd:
        status = self._duplex.exit_status
        reason = EndReason.CONNECTION_LOST if status is None else EndReason.PROCESS_EXITED
        return LinkEnd(reason=reason, message=self._duplex.last_words, exit_status=status)

    def _send_cancellation(self, message: bytes) -> None:
        if len(self._cancellations) >= UNSENT:
            # The server does not read. It gets no more until it does.
            self._observer.note("client.farewell_failed", error="too many cancellations are unsent")
            return

        async def send() -> None:
            try:
                await self._write(message)
            except LinkError as error:
                self._observer.note("client.farewell_failed", error=error)

        task = asyncio.get_running_loop().create_task(send())
        self._cancellations.add(task)
        task.add_done_callback(self._cancellations.discard)
