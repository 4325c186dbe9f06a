"""Large messages are decoded in turn: each pass of the loop decodes only so many bytes of them.

Decoding holds the loop, up to 50 ms for a message of 4 MiB. If a pass decoded all messages that have arrived, every
client would wait for all of them. So a pass decodes messages until `_PASS` bytes are reached, and the next ones wait
for the next pass: of each principal or address one after the other.
"""

import asyncio
from collections import deque
from typing import Final

from limpet.config import KIB
from limpet.core.ledger import Account

_PASS: Final = 512 * KIB
"""Of small values they take about 20 ms."""


class Decoding:
    """The bytes that this pass of the loop may still decode, and the messages that wait for the next one."""

    __slots__ = ("_is_counting", "_left", "_waiting")

    def __init__(self) -> None:
        self._left = _PASS
        self._is_counting = False
        """Bytes were decoded in this pass, or messages wait."""
        self._waiting: dict[Account, deque[tuple[asyncio.Future[None], int]]] = {}
        """By principal or address. The one whose turn is next is the first."""

    def __repr__(self) -> str:
        return f"<Decoding, {sum(map(len, self._waiting.values()))} messages wait>"

    def take(self, size: int) -> bool:
        """Count a message of this length in this pass; False, with nothing counted: it must wait for its turn."""
        if self._left <= 0:
            return False
        self._left -= size
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._begin_pass)
        return True

    async def turn(self, account: Account, size: int) -> None:
        """Wait until a message of this length may be decoded."""
        if not self.take(size):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(account.owner, deque()).append((turn, size))
            await turn

    def _begin_pass(self) -> None:
        self._left, self._is_counting = _PASS, False
        while self._waiting and self._left > 0:
            owner, queue = next(iter(self._waiting.items()))
            del self._waiting[owner]
            turn, size = queue.popleft()
            if queue:
                self._waiting[owner] = queue
            # A task that was cancelled does not need its turn.
            if not turn.done() and self.take(size):
                turn.set_result(None)
