"""This process among the replicas that share its store: its lease, the calls of dead replicas, the news for all.

Reaping. A replica that dies leaves exchanges that do not end by themselves. Every replica searches for them with each
sweep (`orphans`: exchanges whose owner's lease has ended), and ends each of them (`reap`): its terminal message is
−31002, outcome unknown (law 12). It never runs again.

Why each orphan ends once. Several replicas find the same orphan. `reap` is an atomic step that names the owner that the
orphan was found with; the first one gives the exchange a new fence and ends it, and the others change nothing.
Why a living replica is not reaped: see `lease.py`. If it happens nevertheless (a replica that cannot reach the store
while others can), its fence is old, and everything that it still writes is refused.
If `reap` fails, the next sweep finds the same orphan again.

A lease that was lost. Another replica has declared this one dead, and the renewal made a new incarnation. The
exchanges of before are fenced, and their handlers learn it at their next write. The readers here lost their places in
the store with the old lease, so no replica would report their breaks. The server ends them (AGED): their clients attach
again and get new places.

News. Events for all replicas (a list has changed, a resource was updated) are a log in the store. A wake-up says that
there is more; each replica reads from its own cursor to the end. After a wake-up during a read it reads again. A
lost wake-up is repaired by the next one, and a failed read by the next tick. The log is bounded: a replica that is too
far behind assumes that everything has changed.
"""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from limpet.engine.inbox import Inbox
from limpet.engine.lease import LeaseKeeper
from limpet.engine.listening import Listening
from limpet.engine.runtime import Runtime
from limpet.engine.sessions import Sessions
from limpet.errors import LimpetError, OutcomeUnknown, StoreError, joined
from limpet.protocol.subscriptions import decode_change
from limpet.stores.base import Orphan, WakeUp
from limpet.supervision import supervise
from limpet.wire.jsonrpc import refusal

_TICK: Final = 1.0


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(callback)


class Replica:
    """This process as one of several. With a store that is not shared it does nothing."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        listening: Listening,
        inbox: Inbox,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._listening = listening
        self._inbox = inbox
        self._keeper: LeaseKeeper | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._news_cursor = ""
        """The cursor in the news: the events before it were read."""
        self._is_reading_news = self._has_news = False

    async def start(self) -> None:
        """Take the lease, and a cursor in the news, before anything is claimed."""
        runtime = self._runtime
        if runtime.store.is_shared:
            await self._take_lease()
            self._news_cursor = (await runtime.store.announced("")).cursor
            self._ticking = supervise("tick", self._tick, runtime.observer)

    async def _take_lease(self) -> None:
        runtime = self._runtime
        incarnation = await runtime.store.renew(runtime.settings.times.lease)
        loop = asyncio.get_running_loop()
        keeper = LeaseKeeper(
            runtime.store,
            runtime.settings.times,
            runtime.clock,
            lambda: _call(loop, self._lost_lease),
            lambda error: _call(loop, partial(self._not_renewed, error)),
        )
        self._keeper = keeper
        keeper.start(incarnation)

    def _not_renewed(self, error: Exception) -> None:
        self._inbox.recovery.failed()
        self._runtime.observer.note("lease.not_renewed", error=error)

    def _lost_lease(self) -> None:
        """Another replica declared this one dead: its calls are fenced.

        Continue with a new lease, unless this one is stopping.
        """
        if self._keeper is None:
            return
        self._runtime.observer.note("replica.lease_lost", replica=self._runtime.store.replica)
        self._runtime.spawn(self._retake_lease())

    async def _retake_lease(self) -> None:
        """Take a new lease, also if the store is unavailable for long.

        Then end the readers, so that their clients attach again.

        Their places in the store ended with the old lease. A break could not be reported, and no grace period would
        start.
        """
        while True:
            try:
                await self._take_lease()
                break
            except StoreError:
                await asyncio.sleep(self._runtime.settings.times.lease_renewal)
        self._sessions.hand_over()

    async def _tick(self) -> None:
        while True:
            if self._keeper is not None:
                self._keeper.tick()
            self._inbox.tick()
            self._look_for_news()
            await asyncio.sleep(_TICK)

    async def stop(self) -> None:
        """Give the lease back: no call of this process runs any more."""
        ticking, self._ticking = self._ticking, None
        if ticking is not None:
            ticking.cancel()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.to_thread(keeper.stop)
            with contextlib.suppress(LimpetError):
                await self._runtime.store.release()

    # The calls of dead replicas

    async def sweep(self) -> None:
        """End each exchange of a dead replica as outcome unknown.

        The store may return only some at a time: while some were ended and none was left, look again at once.
        """
        store, goes_on = self._runtime.store, self._runtime.store.is_shared
        while goes_on:
            reaping = [self._reap(orphan) for orphan in await store.orphans()]
            ended = await asyncio.gather(*reaping, return_exceptions=True)
            left = [failed for failed in ended if isinstance(failed, BaseException)]
            for failed in left:
                # It is still an orphan: the next sweep finds it again.
                self._runtime.observer.note("orphan.left", error=failed)
            goes_on = True in ended and not left

    async def report_closings(self) -> None:
        """Call the listeners for closings that no replica has reported yet."""
        if self._runtime.store.is_shared:
            for closed in await self._runtime.store.unreported_closings():
                self._sessions.announce(closed)

    async def _reap(self, orphan: Orphan) -> bool:
        """End an exchange; False: another replica did."""
        correlation = self._runtime.random.token(6)
        terminal = refusal(orphan.id, joined(OutcomeUnknown(), correlation))
        is_first = await self._runtime.store.reap(orphan, terminal, tag=self._runtime.random.tag())
        if is_first:
            self._runtime.observer.note(
                "exchange.reaped", session=orphan.session[:8], owner=orphan.owner, correlation=correlation
            )
        return is_first

    # News

    def wake_up(self, kind: WakeUp) -> None:
        """Look into the inbox or at the news."""
        if kind is WakeUp.FORWARD:
            self._inbox.wake_up()
        else:
            self._has_news = True
            self._look_for_news()

    def _look_for_news(self) -> None:
        """Read the news, if a wake-up came since they were last read."""
        if self._has_news and not self._is_reading_news:
            self._is_reading_news = True
            self._runtime.spawn(self._read_news())

    async def _read_news(self) -> None:
        """Read all news. After a wake-up during a read, read again; after a failed read, the next tick tries again."""
        try:
            while self._has_news:
                self._has_news = False
                try:
                    news = await self._runtime.store.announced(self._news_cursor)
                except StoreError:
                    self._has_news = True
                    return
                self._news_cursor = news.cursor
                self._has_news = self._has_news or bool(news.events)
                if news.missed:
                    self._runtime.observer.note("news.missed")
                    self._listening.send_all()
                for event in news.events:
                    self._send_news(event)
        finally:
            self._is_reading_news = False

    def _send_news(self, event: bytes) -> None:
        try:
            self._listening.send(*decode_change(event))
        except msgspec.DecodeError as error:
            # A later release may announce kinds of news that this one does not know.
            self._runtime.observer.note("news.dropped", error=error)
