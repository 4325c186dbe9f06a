"""Slots: a limit of work that runs at once. The next work waits in a bounded queue, in turn by its owners."""

import asyncio
from typing import Final

from limpet.core.admission import Admission, SharedGate
from limpet.errors import Busy

FULL: Final = "too many requests wait for this server"


class Slots:
    """The slots of one upstream, or of the verifier."""

    __slots__ = ("_gate",)

    def __init__(self, most: int, queued: int) -> None:
        self._gate: SharedGate[asyncio.Future[None]] = SharedGate(most, queued)

    async def take(self, owner: str) -> None:
        """Wait for a slot for an owner (`Caller.owner`). Call `release` afterwards.

        Raises:
            Busy: the queue is full.
        """
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        verdict = self._gate.enter(owner, slot)
        if verdict is Admission.REFUSE:
            raise Busy(FULL)
        if verdict is Admission.WAIT:
            try:
                await slot
            except BaseException:
                if not self._gate.abandon(owner, slot):
                    # The slot was given to this task just before it was cancelled.
                    self.release(owner)
                raise

    def release(self, owner: str) -> None:
        """Give the slot to the next call that waits."""
        following = self._gate.leave(owner)
        if following is not None and not following.done():
            following.set_result(None)
