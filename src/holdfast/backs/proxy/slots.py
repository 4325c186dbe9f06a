"""A limit on how many calls of one upstream run at once at the server. The next ones wait in a bounded queue, in turn by their owners."""

import asyncio

from holdfast.core.admission import Admission, SharedGate
from holdfast.errors import Busy


class Slots:
    """Use it as `async with slots.of(owner):` around one request."""

    __slots__ = ("_gate",)

    def __init__(self, most: int, queued: int) -> None:
        self._gate: SharedGate[asyncio.Future[None]] = SharedGate(most, queued)

    def __repr__(self) -> str:
        return f"<Slots {self._gate}>"

    def of(self, owner: str) -> "_Slot":
        """Return a slot for an owner (`Caller.owner`); entering it waits until it is free."""
        return _Slot(self._gate, owner)


class _Slot:
    """One slot. Not an async generator: the view of operators reads the frames of coroutines that wait (`ops/waits.py`)."""

    __slots__ = ("_gate", "_owner")

    def __init__(self, gate: SharedGate[asyncio.Future[None]], owner: str) -> None:
        self._gate = gate
        self._owner = owner

    async def __aenter__(self) -> None:
        """Take the slot; wait for it.

        Raises:
            Busy: the queue is full.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        verdict = self._gate.enter(self._owner, turn)
        if verdict is Admission.REFUSE:
            raise Busy("too many requests wait for this server")
        if verdict is Admission.WAIT:
            try:
                await turn
            except BaseException:
                if not self._gate.abandon(self._owner, turn):
                    # The slot was given to this task just before it was cancelled.
                    self._free()
                raise

    async def __aexit__(self, *_: object) -> None:
        self._free()

    def _free(self) -> None:
        following = self._gate.leave(self._owner)
        if following is not None and not following.done():
            following.set_result(None)
