"""A limit on how many calls of one upstream run at once at the server. The next ones wait in a bounded queue."""

import asyncio
from types import TracebackType

from holdfast.core.admission import Admission, Gate
from holdfast.errors import Busy


class Slots:
    """Use it as `async with slots:` around one request."""

    __slots__ = ("_gate",)

    def __init__(self, most: int, queued: int) -> None:
        self._gate: Gate[asyncio.Future[None]] = Gate(most, queued)

    def __repr__(self) -> str:
        return f"<Slots {self._gate}>"

    async def __aenter__(self) -> None:
        """Take a slot; wait for it in the order of arrival.

        Raises:
            Busy: the queue is full.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        verdict = self._gate.enter(turn)
        if verdict is Admission.START:
            return
        if verdict is Admission.REFUSE:
            raise Busy("too many requests wait for this server")
        try:
            await turn
        except BaseException:
            if not self._gate.abandon(turn):
                # The slot was given to this task just before it was cancelled.
                self._free()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._free()

    def _free(self) -> None:
        following = self._gate.leave()
        if following is not None and not following.done():
            following.set_result(None)
