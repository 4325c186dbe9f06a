"""Keeping a replica's lease from a thread, so that a busy loop does not look dead.

Why no call is lost by an outage of the store, however long. Let L be the lease. A replica renews at least every L/3,
and soon again after a failure. It may declare others dead only after it has renewed for L with no two renewals more
than L/2 apart, by the store's clock. So an outage that it did not notice was shorter than L/2, and every living
replica renewed at most L/3 before it and soon after it: its lease has not ended. An outage that it noticed begins its time
anew; then the store is there for L before any replica is declared dead, and every living one renews in that time. Its lease
may have ended long ago: as no other replica has declared it dead, it goes on under the same incarnation with all its calls. A
process that was stopped, a host that slept and a clock that jumped are gaps between renewals, and the same. Only a
replica that cannot reach the store while another one can is declared dead although it lives: its calls end with
-31002 there, and it is Fenced here. The store decides all this (`stores/base/`, `renew` and `orphans`).

A plain function that blocks the loop for a while is no reason to lose every call; a loop that
hangs for good is. The thread renews while the loop has ticked lately, and stops when it has not.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from holdfast.config import Times
from holdfast.ports import Clock
from holdfast.stores.base import LeaseHandle, Store

_JOIN_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.5
"""A renewal that failed is tried again after this: what may be left of the lease is short."""


class LeaseKeeper:
    """Renews a lease until stopped; calls `lost`, on the thread, when it came back as another incarnation.

    `failed` is called, on the thread, with what a renewal raised.
    """

    def __init__(
        self,
        store: Store,
        times: Times,
        clock: Clock,
        lost: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._times = times
        self._clock = clock
        self._lost = lost
        self._failed = failed
        self._stopping = threading.Event()
        self._ticked = clock.now()
        self._thread: threading.Thread | None = None

    def tick(self) -> None:
        """Show that the loop runs."""
        self._ticked = self._clock.now()

    def start(self, incarnation: int) -> None:
        """Keep this incarnation's lease."""
        arguments = (self._store.twin(), incarnation)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._keep(*arguments)), name="holdfast-lease", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Let the lease go; returns when the thread has ended, or soon after."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    async def _keep(self, store: LeaseHandle, incarnation: int) -> None:
        try:
            pause = self._times.lease_renewal
            while not self._stopping.wait(pause):
                pause = self._times.lease_renewal
                if self._clock.now() - self._ticked > self._times.loop_patience:
                    continue
                try:
                    lease = await store.renew(self._times.lease)
                except Exception as error:  # noqa: BLE001 - whatever it is, the lease has to be kept
                    self._failed(error)
                    # If the lease ends meanwhile, this replica keeps its calls until another one declares it dead.
                    pause = min(pause, _RETRY_SECONDS)
                    continue
                if lease.incarnation != incarnation:
                    self._lost()
                    return
        finally:
            await store.aclose()
