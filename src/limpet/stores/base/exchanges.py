"""Exchanges: claimed before anything runs, ended once, kept for a repeat where the client missed the answer.

An exchange is registered by `claim` under a stream name that the server has made, and gets a fence: a number that is
larger than every earlier fence of its session. Each later write names the fence. A write with another fence raises
`Fenced`, so a writer that was replaced (the exchange was reaped) can change nothing any more.

A claim makes the POST that carried the request the first reader of the exchange's stream, of generation 0, although
the stream does not exist yet. The engine gives this place back with `detach(key, stream, 0, …)`; an exchange that is
forgotten takes its reader with it.

An id is in use from the claim until the settle. After that it is free, unless the answer is kept for a repeat of
exactly the same request; another request under that id frees it.

A request that no connection waits for does not start: its claim is given back (`give_back`). The session remembers the
last WITHDRAWN_STREAMS names. So a claim that is still on its way, or that the home of the session makes later, is
refused, and a repeat that wants to read the exchange learns that nothing of it ran.
"""

from typing import Protocol

from limpet.core.ledger import Account
from limpet.core.records import Claim, Claimed, Closed, Duplicate, Refusal, SessionRecord
from limpet.core.rules import calls, turns
from limpet.stores.backend import GONE
from limpet.stores.base.streams import RoomPart
from limpet.wire.jsonrpc import RequestId


class AtOnce(Protocol):
    """`open`, `claim` and `settle` of a store that never waits, as plain functions.

    Optional: a store offers it as `at_once`.

    The engine uses it for new sessions, and for calls that start at once and end without a stream. Each function has
    the effect, the result and the errors of its coroutine, and the coroutine calls it, so that a store has one rule for
    both.
    """

    def open_nowait(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Has the effect of `open`."""

    def charge_to(self, key: str, account: Account) -> None:
        """Charge the streams and kept answers of a session to an account: they are in the memory of this process."""

    def claim_nowait(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        """Has the effect of `claim`."""

    def settle_nowait(self, key: str, stream: str, fence: int) -> None:
        """Has the effect of `settle` without a terminal message."""


class ExchangePart(RoomPart, Protocol):
    """The calls for exchanges, and for their turns where calls run in order."""

    async def claim(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        """Check session, principal, id and quota, and register the exchange, in one step (law 2).

        The checks, in this order:

        - NO_SESSION if the session is unknown, closed or another principal's.
        - A claim of a `stream` that this incarnation has claimed and not ended is this claim sent again: its fence is
          returned, `returned` is False, and nothing changes; but WITHDRAWN if the stream was given back meanwhile, and
          then the claim has ended. A stream that another replica has claimed, or that has ended, is a Duplicate that
          names this stream, also in a session with `isolate`; `same` is True.
        - WITHDRAWN if the stream was given back before it was claimed.
        - Duplicate if the id is in flight, or kept for a request with the same digest; except in a session with
          `isolate`, where no claim is a duplicate. An answer kept for a request with another digest is released, and
          so is one without a reader that was kept for longer than KEPT_SECONDS and the session's grace.
        - BUSY if the session has `Limits.running` plus `Limits.queued` calls in flight; not for control traffic.

        Raises:
            StoreUnavailable: also if this incarnation of the replica was declared dead, as `attach` does:
                no other replica would search for work that it begins now.
        """
        most = self._limits.running + self._limits.queued
        return await self.apply(
            key, Refusal.NO_SESSION, calls.claim, principal, claim, self.me, most, self.now()
        )

    async def give_back(self, key: str, stream: str, fence: int = 0) -> None:
        """Record that a request does not start, because no connection waits for its answer.

        With its fence, an exchange in flight ends as by `settle` without a message: nothing of it ran. Without a fence
        the caller has not claimed it: if another replica has, only the next claim of this stream there ends it.
        Nothing happens if the session is unknown or closed, or if the exchange has ended or has another fence.
        """
        await self.apply(key, None, calls.give_back, stream, fence, self.now())

    async def settle(
        self, key: str, stream: str, fence: int, terminal: bytes | None, *, tag: int = 0, keep: bool = False
    ) -> None:
        """End an exchange: append its terminal message, complete its stream, free its id, forget its asks.

        - Without a terminal message nothing is left of the exchange, of its stream or of its reader.
        - A terminal message without a stream begins one (`core.stream.before_terminal`).
        - `keep` leaves the id in use for one repeat of the same request, because the client has not received the
          answer. It is free again once a reader has received the whole stream (see `detach`).

        The same end sent again changes nothing: the same tag, or no message and an exchange that is forgotten.

        Raises:
            Fenced: another fence owns the exchange, or it was never claimed.
            StreamClosed: it has ended in another way, which stands.
            SessionGone: the session is unknown or closed.
        """
        if terminal is None:
            await self.apply(key, GONE, calls.end_plain, stream, fence, self.now())
        else:
            await self.apply(key, GONE, calls.settle, stream, fence, terminal, self.at(), tag=tag, keep=keep)
        if self.over > 0:
            await self._make_room(key)

    async def keep(self, key: str, stream: str, claim: Claim, terminal: bytes | None, *, tag: int) -> None:
        """Keep the answer of a settled exchange for a repeat, because the write to the client failed afterwards.

        With `terminal` None the answer is in the stream of the exchange. Nothing is kept if the session is unknown
        or closed, if the id is in use again, if a reader has received the whole stream, or if the stream is forgotten:
        the client has the answer, or may use the id for another request.
        """
        await self.apply(key, None, calls.keep, stream, claim, terminal, self.at(), tag=tag)
        if self.over > 0:
            await self._make_room(key)

    async def cancel(self, key: str, principal: str, request_id: RequestId) -> None:
        """Send CANCEL for the exchange in flight under this id.

        Nothing happens if the session is unknown, closed or another principal's, or if no exchange or more than one
        has this id.
        """
        await self.apply(key, None, calls.cancel, principal, request_id)

    async def turn(self, key: str, stream: str, fence: int) -> bool:
        """Return True if a call may start: no call of its session with a smaller fence is in flight or holds its turn.

        Raises:
            Fenced, StreamClosed: the call has ended.
            SessionGone: the session is unknown or closed.
        """
        return await self.apply(key, GONE, turns.turn, stream, fence)

    async def hold_turn(self, key: str, stream: str, fence: int) -> None:
        """Keep the turn of a call beyond its end, until `pass_turn`, or until this replica is declared dead.

        Raises:
            Fenced, StreamClosed, SessionGone: as `turn`.
        """
        await self.apply(key, GONE, turns.hold_turn, stream, fence, self.me)

    async def pass_turn(self, key: str, stream: str, fence: int) -> None:
        """End a turn that was held under this fence, and send TURN for the call that may start now. Never raises."""
        await self.apply(key, None, turns.pass_turn, stream, fence)
        await self.apply(key, None, turns.wake_next)
