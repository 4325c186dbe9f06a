"""Claims: the store accepts a request before anything of it runs (law 2), and gets the claim back if nothing does.

One step in the store checks the session, the principal, the id and the quota, and gives the
exchange its fence. Nothing runs before it, and a request that is refused there had no effect. If the claim's
answer is lost (the request is cancelled, or the store does not answer in time), it is not known whether the claim was
made. Then it is made again under the same stream name, which a store counts once, and given back (`_undo`). A request
with the same id that comes meanwhile waits for that, and also for an end that is stored again after a failure of the
store (`follow`).

A refused claim is made again in two cases (`refused`). The exchange that had the id was given back: nothing of it ran.
Or it may have been answered just now: an answer leaves before its end is stored, so a client that uses the id again at
another replica can be faster than the end. That is tried for REUSE_SECONDS; an id that is then still in use is a
duplicate.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from hashlib import sha256
from math import inf
from typing import Any, Final

from msgspec import Struct

from limpet.core.exchange import ExchangeInput
from limpet.core.fate import Fate
from limpet.engine.caller import Caller
from limpet.engine.exchange import SessionExchange
from limpet.engine.outages import retried
from limpet.engine.repeats import Earlier, Repeats
from limpet.engine.runtime import Runtime
from limpet.engine.session import Session
from limpet.errors import Busy, DuplicateId, SessionGone, StoreError, Withdrawn
from limpet.stores.base import Claim, Claimed, Duplicate, Refusal
from limpet.wire.jsonrpc import RequestId

_ANSWER_SECONDS: Final = 0.1
"""How long a repeat waits for the answer of the first request to be written. Mostly it takes one pass of the loop."""
REUSE_SECONDS: Final = 0.2
"""How long a claim is made again while the call that has its id may just have been answered."""
_KEPT: Final = (Fate.GONE, Fate.KEPT)
_REUSE_PAUSE: Final = 0.02
"""The pause before a claim is made again."""


class Repeat(Struct, frozen=True):
    """An exact repeat of a POST whose connection broke: it attaches to the exchange that it repeats."""

    session: Session
    stream: str
    id: RequestId


class Claims:
    """Makes the claims of this replica, gives them back, and decides about those that are refused."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.repeats: Repeats = Repeats(runtime)
        self.digest: Callable[[bytes], bytes] = _hashed if runtime.at_once is None else _hashed_here
        """Returns the digest of a request, which distinguishes a repeat of it from another request under its id."""
        self.running: int = 0
        """How many claims are on their way to the store: a stop waits for them, although no handler runs yet."""
        self._freeing: dict[str, asyncio.Task[None]] = {}
        """By stream: the tasks that give claims back, and those that store an end which the store did not take at
        first."""

    async def make(self, key: str, caller: Caller, claim: Claim) -> Claimed | Repeat:
        """Claim an exchange; return the exchange that a repeat reads instead. Raises as `Exchanges.submit_here`."""
        if (local := self._runtime.sessions.get(key)) is not None and claim.id in local.answering:
            await _wait_for_answer(local, claim, caller)
        now, until = self._runtime.clock.now, inf
        while True:
            is_last = now() >= until
            claimed = await self.attempt(key, caller, claim)
            if isinstance(claimed, Claimed):
                return claimed
            until = -inf if is_last else min(until, now() + REUSE_SECONDS)
            repeat = await self.refused(key, caller, claim.id, claimed, claim.stream, until=until)
            if repeat is not None:
                return repeat

    async def attempt(self, key: str, caller: Caller, claim: Claim) -> Claimed | Duplicate | Refusal:
        """Claim an exchange, unless its client has disconnected."""
        waiter = caller.waiter
        if waiter is not None and waiter.gone:
            raise self.withdrawn(key)
        self.running += 1
        try:
            claimed = await self._runtime.store.claim(key, caller.key, claim)
            if waiter is not None and self._runtime.pulse.is_waking():
                await waiter.look()
        except BaseException:
            self._undo(key, caller.key, claim)
            raise
        finally:
            self.running -= 1
        return claimed

    async def free(self, key: str, stream: str, fence: int) -> None:
        """Free a claim under which nothing has started: another replica makes it."""
        store = self._runtime.store
        # Another replica may have ended it.
        with contextlib.suppress(StoreError, SessionGone):
            await retried(lambda: store.settle(key, stream, fence, None))

    def _undo(self, key: str, principal: str, claim: Claim) -> None:
        """Give back a claim that may have been made: its request was cancelled, or the store did not answer in time."""
        self.follow(claim.stream, self._undone(key, principal, claim))

    def follow(self, stream: str, work: Coroutine[Any, Any, None]) -> None:
        """Give a claim back, or store the end of its exchange, in a task: a request with the same id waits for it."""
        self._freeing[stream] = task = self._runtime.begin(work)
        task.add_done_callback(lambda _: self._freeing.pop(stream, None))

    async def _undone(self, key: str, principal: str, claim: Claim) -> None:
        """Claim the same exchange again, to learn its fence, and give it back. Nothing has run for it."""
        store = self._runtime.store
        claimed = await retried(lambda: store.claim(key, principal, claim))
        if isinstance(claimed, Claimed):
            fence = claimed.fence
            await retried(lambda: store.give_back(key, claim.stream, fence))

    async def refused(
        self, key: str, caller: Caller, request_id: RequestId, refused: Duplicate | Refusal, stream: str = "", *,
        until: float = -inf,
    ) -> Repeat | None:  # fmt: skip
        """Raise the error of a refused claim, or return the exchange that a repeat reads. None: make the claim again.

        A duplicate that names the claimed `stream` itself has started at another replica, and is read in the same way.
        Until the time `until` the call that has the id may have been answered before the request was sent; minus
        infinity: it was not.
        """
        if refused is Refusal.NO_SESSION:
            raise SessionGone
        if refused is Refusal.WITHDRAWN:
            raise self.withdrawn(key)
        if not isinstance(refused, Duplicate):
            raise Busy(
                "Busy: the session has too many calls in flight, or too many answers that its client has not taken; try again shortly"
            )
        if (freeing := self._freeing.get(refused.stream)) is not None:
            await asyncio.wait([freeing])
            return None
        local = self._runtime.sessions.get(key)
        runs_here = local is not None and refused.stream in local.exchanges
        until = -inf if runs_here else until
        found = await self._runtime.store.find(key, caller.key) if refused.same else None
        if found is None:
            if until == -inf:
                raise self._duplicate(key)
            await asyncio.sleep(_REUSE_PAUSE)
            return None
        session = self._runtime.local_session(found.record)
        is_own = refused.stream == stream
        earlier = Earlier.LOST if is_own else await self.repeats.look(session, refused, until)
        if earlier is Earlier.LOST:
            self._runtime.observer.note("exchange.repeated", session=session.name)
            return Repeat(session, refused.stream, request_id)
        self._runtime.release(session)
        if earlier is Earlier.ALIVE:
            raise self._duplicate(key)
        return None

    def _duplicate(self, key: str) -> DuplicateId:
        """Report a duplicate; return its error."""
        local = self._runtime.sessions.get(key)
        self._runtime.quirks.duplicate(local.record.client if local is not None else None, key[:8])
        return DuplicateId()

    def withdrawn(self, key: str) -> Withdrawn:
        """Report a request that does not start, because no connection waits for it; return its error."""
        self._runtime.observer.note("request.dropped", session=key[:8])
        return Withdrawn()

    async def claim_again(self, exchange: SessionExchange) -> ExchangeInput | None:
        """Claim an exchange that has waited once more. None: it is still claimed here, and a connection waits for it.

        WITHDRAWN: the replica that has its connection has given it back. LOST: other replicas have declared this one
        dead and have ended it, or its session is closed.
        """
        store, record = self._runtime.store, exchange.session.record
        claimed = await retried(lambda: store.claim(record.key, record.principal, exchange.claim))
        if claimed is Refusal.WITHDRAWN:
            return ExchangeInput.WITHDRAWN
        if isinstance(claimed, Claimed) and claimed.fence == exchange.fence:
            return None
        if isinstance(claimed, Claimed):
            # The end that others wrote is forgotten already, so this was a new claim.
            await self.free(record.key, exchange.claim.stream, claimed.fence)
        return ExchangeInput.LOST


async def _wait_for_answer(session: Session, claim: Claim, caller: Caller) -> None:
    """Wait until the same request, which has ended, is answered: its answer is written soon, or kept for this repeat.

    If the client has taken it, the store is about to free the id: `Repeats.look` waits for that. If the caller
    disconnects, the wait
    ends: both requests can be members of one batch, whose answers are kept after all of them were submitted.

    Raises:
        DuplicateId: its client does not read the answer, and its connection is still open.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + _ANSWER_SECONDS
    while (
        (earlier := session.answering.get(claim.id)) is not None
        and earlier.has_ended
        and earlier.claim.digest == claim.digest
        and not session.record.isolate
        and earlier.writer.fate is not Fate.TAKEN
        and not (caller.waiter is not None and caller.waiter.gone)
    ):
        # The first connection is gone, so the answer will be kept: this is a repeat, and it may wait.
        left = None if earlier.writer.fate in _KEPT else deadline - now()
        if left is not None and left <= 0:
            raise DuplicateId
        await earlier.writer.wake.next(left)


def _hashed(body: bytes) -> bytes:
    """Return the digest for a store that may outlive this process. All releases on one store must use the same hash."""
    return sha256(body).digest()


def _hashed_here(body: bytes) -> bytes:
    """Return the digest for a store of this process: its own keyed hash of 64 bits.

    7,000 instructions fewer than SHA-256, of the 162,000 of a plain call (callgrind). Another request of the same
    client under the same id would be taken for a repeat once in 2^64 times; another client's request is never compared.
    """
    return hash(body).to_bytes(8, "little", signed=True)
