"""The lease of a replica: kept by a thread, so that a busy event loop does not look dead.

A replica counts as alive until its lease ends. It renews the lease at least every third of its length L, and soon
again after a failure. When the lease has ended, another replica may declare it dead and end its calls (`replica.py`).

          renew        renew        renew                 no renewal              another replica may
      ──────┼────────────┼────────────┼───────────────────────┼──────────────────── declare it dead
            ◀── L/3 ────▶            ◀────────── L ──────────▶ the lease ends

Why an outage of the store ends no call, even if it is long.

1. A replica may declare others dead only after it has renewed for a whole L with no two renewals more than L/2 apart,
   by the store's clock.
2. So an outage that it did not notice was shorter than L/2. Every living replica renewed at most L/3 before the outage
   and soon after it: its lease has not ended.
3. An outage that it noticed starts this time again. The store is then reachable for L before any replica is declared
   dead, and every living replica renews in that time.
4. The lease of a living replica may have ended during the outage. As no other replica has declared it dead, it
   continues under the same incarnation, with all its calls.

A process that was stopped, a host that slept and a clock that jumped forward are gaps between renewals, and the same
proof holds. A clock that is set back by more than L/2 starts the time of 1 again too. A lease that is renewed in the
future after that time belongs to a replica that has not renewed since the jump: it has ended. One case is left: a
replica that cannot reach the store while others can is declared dead although it lives. Its calls end there with
−31002, and its own writes are refused (Fenced). The store decides all this (`stores/base/`, `renew` and `orphans`).

Why a thread. If a function blocks the event loop for some seconds, the replica must not be declared dead. If the loop
hangs forever, it must. So the thread renews the lease only if the loop has ticked within `loop_patience`. The thread
has its own store object (`twin`) and its own event loop. The two threads share only the time of the last tick and the
callbacks `lost` and `failed`.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from limpet.config import Times
from limpet.ports import Clock
from limpet.stores.base import LeaseHandle, Store

_JOIN_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.5
"""A renewal that failed is tried again after this time: the lease may be about to end."""


class LeaseKeeper:
    """Renews a lease until it is stopped.

    Calls `lost` if another replica has declared this one dead: the renewal made a new incarnation. Calls `failed` with
    the exception of a renewal that failed. Both are called in the thread.
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
        """Report that the event loop runs."""
        self._ticked = self._clock.now()

    def start(self, incarnation: int) -> None:
        """Keep this incarnation's lease."""
        arguments = (self._store.twin(), incarnation)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._keep(*arguments)), name="limpet-lease", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Renew no more; returns when the thread has ended, or after a short wait."""
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
                    renewed = await store.renew(self._times.lease)
                except Exception as error:  # noqa: BLE001 - after any failure the lease must be renewed
                    self._failed(error)
                    # If the lease ends meanwhile, this replica keeps its calls until another one declares it dead.
                    pause = min(pause, _RETRY_SECONDS)
                    continue
                if renewed != incarnation:
                    self._lost()
                    return
        finally:
            await store.aclose()
