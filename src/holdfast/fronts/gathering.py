"""Batches on a connection (2025-03-26): the answers of an array's requests leave as one array."""

from collections.abc import Awaitable, Callable

from holdfast.engine.exchange import Exchange
from holdfast.engine.session import Channel

Send = Callable[[bytes], Awaitable[None]]


class Gathering:
    """Waits for as many terminal messages as there were requests."""

    def __init__(self, expected: int, send: Send) -> None:
        self._expected = expected
        self._send = send
        self._messages: list[bytes] = []

    async def add(self, terminal: bytes) -> None:
        """Take one terminal message; the last one sends them all."""
        self._messages.append(terminal)
        if len(self._messages) == self._expected:
            await self._send(b"[" + b",".join(self._messages) + b"]")

    def outlet(self, exchange: Exchange, channel: Channel) -> "GatheredOutlet":
        """Return the way out of one of its exchanges."""
        return GatheredOutlet(self, exchange, channel)


class GatheredOutlet:
    """Straight onto the connection, but for the terminal message."""

    __slots__ = ("_channel", "_exchange", "_gathering")

    def __init__(self, gathering: Gathering, exchange: Exchange, channel: Channel) -> None:
        self._gathering = gathering
        self._exchange = exchange
        self._channel = channel

    def refuse_asks(self) -> str | None:
        """A connection carries everything."""
        return None

    async def send(self, message: bytes) -> None:
        """Write it; waits while the peer is behind."""
        await self._channel.send(message)

    async def settle(self, terminal: bytes) -> None:
        """Free the id, then hand the message over."""
        exchange = self._exchange
        try:
            await exchange.store.settle(
                exchange.session.record.key, exchange.claim.stream, exchange.fence, None
            )
        finally:
            await self._gathering.add(terminal)
