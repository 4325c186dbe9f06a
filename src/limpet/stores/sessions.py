"""The commands of a session, once for every backend.

Each of them applies a rule to the document of a session, in one atomic step.

A command has no rule of its own. It names the rule, and the answer for a session that is unknown or closed; the backend
applies the rule (`Backend.apply`).

What lies outside the document is done after that step, and may be repeated: streams of other sessions are forgotten if
the whole store is over its budget (`_make_room`).
"""

from typing import Final

from limpet.core.lifecycle import SessionInput
from limpet.core.records import (
    Answered,
    Attached,
    Claim,
    Claimed,
    Closed,
    Duplicate,
    Ending,
    Found,
    Probed,
    Refusal,
    SessionRecord,
    Status,
)
from limpet.core.rules import asks, calls, life, readers, streams, turns
from limpet.core.rules.document import Document, replica_of
from limpet.core.rules.state import growth
from limpet.core.stream import NewEvents, Position
from limpet.stores.backend import GONE, Backend
from limpet.wire.jsonrpc import RequestId

_NONE: Final[frozenset[str]] = frozenset()


class SessionCommands(Backend):
    """sessions, exchanges, streams, readers, asks, turns, subscriptions: all commands that concern one session."""

    # Sessions

    async def find(self, key: str, principal: str) -> Found | None:
        """Return the session if it is open and belongs to this principal. Counts as a sign of the client."""
        return await self.apply(key, None, life.find, principal, self.now())

    async def look(self, key: str) -> Status | None:
        """Return an open session."""
        return await self.apply(key, None, life.look, self.now())

    async def change(self, key: str, *, level: str | None = None, initialized: bool | None = None) -> None:
        """Set the named fields."""
        await self.apply(key, None, life.change, level, initialized)

    async def close(self, key: str, reason: SessionInput, ending: Ending | None = None) -> Closed | None:
        """Close a session once. Its exchanges in flight end too."""
        return await self.end(key, lambda _: reason, ending)

    async def sweep(self) -> list[Closed]:
        """Close the sessions that are due. A hint that was too early is replaced by the next one."""
        closed: list[Closed] = []
        for key in await self.due():
            ended = await self.end(key, self._examine)
            if ended is not None:
                closed.append(ended)
        return closed

    def _examine(self, doc: Document) -> SessionInput | None:
        return life.examine(doc, self.now())

    async def take_home(self, key: str, expected: str) -> SessionRecord | None:
        """Make this replica the home if the home is `expected`."""
        return await self.apply(key, None, life.take_home, expected, replica_of(self.me))

    # Subscriptions

    async def subscribe(self, key: str, uri: str) -> bool:
        """Remember a subscription."""
        cost, spare = growth(None, len(uri.encode())), await self.spare_kept(key)
        return await self.apply(key, False, life.subscribe, uri, cost, self._limits, spare)  # noqa: FBT003

    async def unsubscribe(self, key: str, uri: str) -> None:
        """Forget a subscription."""
        await self.apply(key, False, life.unsubscribe, uri, growth(None, len(uri.encode())))  # noqa: FBT003

    async def subscriptions(self, key: str) -> list[str]:
        """Return the resources that a session subscribed to."""
        return sorted(await self.apply(key, _NONE, life.subscriptions))

    # Exchanges

    async def claim(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        """Register the exchange if its id is free and there is room."""
        most = self._limits.running + self._limits.queued
        return await self.apply(
            key, Refusal.NO_SESSION, calls.claim, principal, claim, self.me, most, self.now()
        )

    async def give_back(self, key: str, stream: str, fence: int = 0) -> None:
        """End an exchange of which nothing ran, and remember its name."""
        await self.apply(key, None, calls.give_back, stream, fence, self.now())

    async def settle(
        self, key: str, stream: str, fence: int, terminal: bytes | None, *, tag: int = 0, keep: bool = False
    ) -> None:
        """End an exchange, with or without a stream."""
        if terminal is None:
            await self.apply(key, GONE, calls.end_plain, stream, fence, self.now())
        else:
            await self.apply(key, GONE, calls.settle, stream, fence, terminal, self.at(), tag=tag, keep=keep)
        if self.over > 0:
            await self._make_room(key)

    async def keep(self, key: str, stream: str, claim: Claim, terminal: bytes | None, *, tag: int) -> None:
        """Keep a settled exchange's answer for a repeat, unless its id is in use again or a reader has received it."""
        await self.apply(key, None, calls.keep, stream, claim, terminal, self.at(), tag=tag)
        if self.over > 0:
            await self._make_room(key)

    async def cancel(self, key: str, principal: str, request_id: RequestId) -> None:
        """Send CANCEL for the exchange in flight under this id, if there is exactly one."""
        await self.apply(key, None, calls.cancel, principal, request_id)

    async def turn(self, key: str, stream: str, fence: int) -> bool:
        """Return True if a call may start."""
        return await self.apply(key, GONE, turns.turn, stream, fence)

    async def hold_turn(self, key: str, stream: str, fence: int) -> None:
        """Keep the turn of a call after its end."""
        await self.apply(key, GONE, turns.hold_turn, stream, fence, self.me)

    async def pass_turn(self, key: str, stream: str, fence: int) -> None:
        """End a turn, and send TURN for the next call."""
        await self.apply(key, None, turns.pass_turn, stream, fence)
        await self.apply(key, None, turns.wake_next)

    # Streams and their readers

    async def open_stream(self, key: str, stream: str, fence: int, tag: int) -> Position:
        """Start the stream of an exchange. If it has started already, keep it."""
        return await self.apply(key, GONE, streams.open_stream, stream, fence, tag)

    async def append(self, key: str, stream: str, fence: int, events: NewEvents) -> Position:
        """Add events and send STREAM."""
        position: Position = await self.apply(key, GONE, streams.append, stream, fence, events, self.at())
        if self.over > 0:
            await self._make_room(key)
        return position

    async def _make_room(self, key: str) -> None:
        """After a write: while the store is over its budget, forget complete streams, then cut the largest log."""
        while self.over > 0 and (oldest := await self.oldest_finished()) is not None:
            if not await self.apply(oldest[0], False, streams.forget_finished, oldest[1]):  # noqa: FBT003
                break
        while (over := self.over) > 0:
            if not await self.apply(key, False, streams.cut_largest, over, self._limits):  # noqa: FBT003
                break

    async def attach(
        self,
        key: str,
        principal: str,
        stream: str | None,
        cursor: Position | None,
        *,
        since: int | None = None,
    ) -> Attached | Refusal:
        """Make the caller the reader of the stream. It replaces the reader before it."""
        now = self.now()
        return await self.apply(
            key, Refusal.NO_SESSION, readers.attach, principal, stream, cursor, since, self.me, now
        )

    async def detach(
        self, key: str, stream: str, generation: int, cursor: Position | None, *, broke: bool
    ) -> bool:
        """Remove the reader of a stream. If it broke and no reader is left, the grace period starts."""
        now = self.now()
        return await self.apply(key, False, readers.detach, stream, generation, cursor, now, broke=broke)  # noqa: FBT003

    async def probe(self, key: str, stream: str) -> Probed | None:
        """Return the state of a stream and its reader, and send PROBE if another replica has the reader."""
        return await self.apply(key, None, readers.probe, stream, self.me)

    async def vouch(self, key: str, stream: str, *, alive: bool) -> None:
        """Record that the reader is alive, or that it is not."""
        await self.apply(key, None, readers.vouch, stream, alive=alive)

    # Asks

    async def ask(self, key: str, ask: str, stream: str) -> bool:
        """Register an ask if the session is below its limit of asks."""
        return await self.apply(key, GONE, asks.ask, ask, stream, self.me, self._limits.asks)

    async def answer(
        self, key: str, principal: str, ask: str, digest: bytes, payload: bytes
    ) -> Answered | Refusal:
        """Keep the first answer."""
        now = self.now()
        return await self.apply(key, Refusal.NO_SESSION, asks.answer, principal, ask, digest, payload, now)

    async def take_answer(self, key: str, ask: str) -> bytes | None:
        """Return an ask's answer."""
        return await self.apply(key, None, asks.take_answer, ask)

    async def withdraw(self, key: str, ask: str) -> None:
        """Forget an ask."""
        await self.apply(key, None, asks.withdraw, ask, self.now())
