"""A limit on how many calls of one upstream run at once at the server. The next ones wait in a bounded queue, in turn by their owners."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.core.admission import Admission, SharedGate
from holdfast.errors import Busy


class Slots:
    """Use it as `async with slots.of(owner):` around one request."""

    __slots__ = ("_gate",)

    def __init__(self, most: int, queued: int) -> None:
        self._gate: SharedGate[asyncio.Future[None]] = SharedGate(most, queued)

    def __repr__(self) -> str:
        return f"<Slots {self._gate}>"

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """Take a slot for an owner (`Caller.owner`); wait for it.

        Raises:
            Busy: the queue is full.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        verdict = self._gate.enter(owner, turn)
        if verdict is Admission.REFUSE:
            raise Busy("too many requests wait for this server")
        if verdict is Admission.WAIT:
            try:
                await turn
            except BaseException:
                if not self._gate.abandon(owner, turn):
                    # The slot was given to this task just before it was cancelled.
                    self._free(owner)
                raise
        try:
            yield
        finally:
            self._free(owner)

    def _free(self, owner: str) -> None:
        following = self._gate.leave(owner)
        if following is not None and not following.done():
            following.set_result(None)
