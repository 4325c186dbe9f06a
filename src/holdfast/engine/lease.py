"""Keeping a replica's lease from a thread, so that a busy loop does not look dead.

A plain function that blocks the loop for a while is no reason to lose every call; a loop that
hangs for good is. The thread renews while the loop has ticked lately, and stops when it has not.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from holdfast.config import Times
from holdfast.errors import StoreError
from holdfast.ports import Clock
from holdfast.stores.base import Store

_JOIN_SECONDS: Final = 2.0


class LeaseKeeper:
    """Renews a lease until stopped; calls `lost`, on the thread, when it came back as another incarnation."""

    def __init__(self, store: Store, times: Times, clock: Clock, lost: Callable[[], None]) -> None:
        self._store = store
        self._times = times
        self._clock = clock
        self._lost = lost
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

    async def _keep(self, store: Store, incarnation: int) -> None:
        try:
            while not self._stopping.wait(self._times.lease_renewal):
                if self._clock.now() - self._ticked > self._times.loop_patience:
                    continue
                try:
                    lease = await store.renew(self._times.lease)
                except (StoreError, OSError):
                    # It will be tried again; if the lease ends meanwhile, others take over.
                    continue
                if lease.incarnation != incarnation:
                    self._lost()
                    return
        finally:
            await store.aclose()
