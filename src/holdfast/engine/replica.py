"""This process among those that share its store: its lease, what the dead leave behind, what all are told."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from holdfast.engine.adoption import Adoption
from holdfast.engine.forwarding import Forwarding
from holdfast.engine.lease import LeaseKeeper
from holdfast.engine.listening import Listening
from holdfast.engine.reader import End
from holdfast.engine.runtime import Runtime
from holdfast.engine.sessions import Sessions
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreError
from holdfast.protocol.subscriptions import Change, decode_change, encode_change
from holdfast.stores.base import Orphan, WakeUp
from holdfast.supervision import supervise
from holdfast.wire.jsonrpc import refusal

_TICK: Final = 1.0


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(callback)


class Replica:
    """One of several. In a store that is not shared it has nothing to do."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        listening: Listening,
        forwarding: Forwarding,
        adoption: Adoption,
    ) -> None:
        self._runtime = runtime
        self._adoption = adoption
        self._sessions = sessions
        self._listening = listening
        self._forwarding = forwarding
        self._keeper: LeaseKeeper | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._heard = ""
        """How far the news is known."""
        self._hearing = self._has_news = False

    def __repr__(self) -> str:
        return f"<Replica {self._runtime.store.replica}>"

    async def start(self) -> None:
        """Take the lease, and the place in the news, before anything is claimed."""
        runtime = self._runtime
        if runtime.store.is_shared:
            await self._take_lease()
            self._heard = (await runtime.store.announced("")).cursor
            self._ticking = supervise("tick", self._tick, runtime.observer)

    async def _take_lease(self) -> None:
        runtime = self._runtime
        lease = await runtime.store.renew(runtime.settings.times.lease)
        loop = asyncio.get_running_loop()
        keeper = LeaseKeeper(
            runtime.store,
            runtime.settings.times,
            runtime.clock,
            lambda: _call(loop, self._lost_lease),
            lambda error: _call(loop, partial(runtime.observer.note, "lease.not_renewed", error=error)),
        )
        self._keeper = keeper
        keeper.start(lease.incarnation)

    def _lost_lease(self) -> None:
        """The lease had ended: what ran may have been reaped, and is Fenced when it writes. Go on as a new one."""
        self._runtime.observer.note("replica.lease_lost", replica=self._runtime.store.replica)
        self._runtime.spawn(self._retake_lease())

    async def _retake_lease(self) -> None:
        """Take a new lease, however long the store is away; then let those who read here attach again.

        Their places went with the old lease: a break that nobody can report would not start their grace.
        """
        while True:
            try:
                await self._take_lease()
                break
            except StoreError:
                await asyncio.sleep(self._runtime.settings.times.lease_renewal)
        for session in list(self._runtime.sessions.values()):
            for stream, readers in list(session.readers.items()):
                if session.revision.early_close or stream == session.record.standalone:
                    for reader in readers:
                        reader.stop(End.AGED)

    async def _tick(self) -> None:
        while True:
            if self._keeper is not None:
                self._keeper.tick()
            self._look()
            await asyncio.sleep(_TICK)

    async def stop(self) -> None:
        """Give the lease back: nothing of ours runs any more."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.stop)
            with contextlib.suppress(HoldfastError):
                await self._runtime.store.release()

    # What the dead leave behind

    async def sweep(self) -> None:
        """Run the exchanges of dead replicas again, or end each with one honest error."""
        store = self._runtime.store
        if not store.is_shared:
            return
        looks = [self._look_after(orphan) for orphan in await store.orphans()]
        for failed in await asyncio.gather(*looks, return_exceptions=True):
            if failed is not None:
                # It is an orphan still, and found again.
                self._runtime.observer.note("orphan.left", error=failed)

    async def tell_again(self) -> None:
        """Call the listeners for closings that no replica has reported yet."""
        if self._runtime.store.is_shared:
            for closed in await self._runtime.store.unreported_closings():
                self._sessions.announce(closed)

    async def _look_after(self, orphan: Orphan) -> None:
        if self._adoption.may_adopt(orphan):
            await self._adoption.adopt(orphan)
        else:
            await self._reap(orphan)

    async def _reap(self, orphan: Orphan) -> None:
        terminal = refusal(orphan.id, OutcomeUnknown())
        if await self._runtime.store.reap(orphan, terminal, tag=self._runtime.random.tag()):
            self._runtime.observer.note("exchange.reaped", session=orphan.session[:8], owner=orphan.owner)

    # What all are told

    async def changed(self, change: Change, principal: str | None) -> None:
        """Tell the listeners of every replica."""
        runtime = self._runtime
        if runtime.store.is_shared:
            await runtime.store.announce(runtime.random.token(12), encode_change(change, principal))
        else:
            self._listening.tell(change, principal)

    def rung(self, what: WakeUp) -> None:
        """Look into the inbox or at the news."""
        if what is WakeUp.FORWARD:
            self._forwarding.is_rung = True
        else:
            self._has_news = True
        self._look()

    def _look(self) -> None:
        """Begin what bells have asked for and no look has done."""
        if self._forwarding.is_rung:
            self._forwarding.is_rung = False
            self._runtime.spawn(self._forwarding.look())
        if self._has_news and not self._hearing:
            self._hearing = True
            self._runtime.spawn(self._hear())

    async def _hear(self) -> None:
        """Read the news to their end. A bell during a read leads to another one; a failed read is tried at the next tick."""
        try:
            while self._has_news:
                self._has_news = False
                try:
                    news = await self._runtime.store.announced(self._heard)
                except StoreError:
                    self._has_news = True
                    return
                self._heard = news.cursor
                self._has_news = self._has_news or bool(news.events)
                for event in news.events:
                    self._tell(event)
        finally:
            self._hearing = False

    def _tell(self, event: bytes) -> None:
        try:
            self._listening.tell(*decode_change(event))
        except msgspec.DecodeError as error:
            # A later release may announce what this one knows nothing of.
            self._runtime.observer.note("news.dropped", error=error)
