"""When a call may go to a server that does not say to which call its questions belong: one call at a time.

A call whose client is asked may wait for long, or forever if the client has disconnected. Calls that wait for their
turn do not wait for that: they run on a separate connection.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.engine.slots import FULL
from limpet.errors import Busy


class TurnTaken(Exception):
    """The call that has the turn waits for its client."""


class UpstreamTurns:
    """The turns of the calls of one upstream, in the order of arrival. State is complete at every await."""

    __slots__ = ("_asks", "_is_taken", "_queued", "_waiting")

    def __init__(self, queued: int) -> None:
        self._queued = queued
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._is_taken = False
        self._asks = 0

    async def take(self) -> None:
        """Wait for the turn. Call `release` afterwards.

        Raises:
            TurnTaken: the call that has the turn waits for its client, or begins to wait for it.
            Busy: too many calls wait.
        """
        if not self._is_taken:
            self._is_taken = True
            return
        if self._asks:
            raise TurnTaken
        if len(self._waiting) >= self._queued:
            raise Busy(FULL)
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            has_turn = await turn
        except BaseException:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.done() and not turn.cancelled() and turn.result():
                # The turn was given to this task just before it was cancelled.
                self.release()
            raise
        if not has_turn:
            raise TurnTaken

    def release(self) -> None:
        """Give the turn to the next call that waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        self._is_taken = False

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Within this block the call that has the turn waits for its client: no other call waits for this call."""
        self._asks += 1
        waiting, self._waiting = self._waiting, deque()
        for turn in waiting:
            if not turn.done():
                turn.set_result(False)
        try:
            yield
        finally:
            self._asks -= 1


def needs_turns(target: Target, client: UpstreamClient) -> bool:
    """True if calls run one at a time, because otherwise it is not known to which call a question belongs."""
    may_be_asked = bool({"sampling", "elicitation", "roots"} & client.capabilities.keys())
    return not target.names_calls and not client.session and may_be_asked
