"""The open sessions of the memory store: by key, and by the times at which they may be due."""

import heapq
from collections.abc import Callable
from math import inf
from typing import Final

from holdfast.config import Limits
from holdfast.errors import Fenced, SessionGone, StreamClosed
from holdfast.stores.base import OnWake
from holdfast.stores.memory.session import MemoryExchange, MemorySession

_SPARE_HINTS: Final = 64
"""The number of hints of closed sessions that may always stay in the heap."""


class SessionTable:
    """The base of all calls of the store that concern a session."""

    wake: OnWake
    now: Callable[[], float]
    _limits: Limits

    def __init__(self) -> None:
        self._sessions: dict[str, MemorySession] = {}
        self._due: list[tuple[float, str]] = []

    def _live(self, key: str, principal: str) -> MemorySession | None:
        """Return a session of this principal."""
        session = self._sessions.get(key)
        return session if session is not None and session.record.principal == principal else None

    def _owner(self, key: str) -> MemorySession:
        """Return a session. Raises SessionGone if it is not open."""
        if (session := self._sessions.get(key)) is None:
            raise SessionGone
        return session

    def _exchange(self, key: str, stream: str) -> MemoryExchange | None:
        """Return an exchange of a session."""
        session = self._sessions.get(key)
        return session.exchanges.get(stream) if session else None

    def _writable(self, key: str, stream: str, fence: int) -> tuple[MemorySession, MemoryExchange]:
        """Return a session and its exchange, if this fence may write the exchange. Raises Fenced or StreamClosed if not."""
        session = self._owner(key)
        exchange = session.exchanges.get(stream)
        if exchange is None or exchange.fence != fence:
            raise Fenced
        if not exchange.running:
            raise StreamClosed
        return session, exchange

    def _schedule(self, session: MemorySession, at: float = -inf) -> None:
        """Push a hint for the session, if it is earlier than the present one."""
        due = max(at, session.due()[0])
        if due >= session.hint:
            return
        session.hint = due
        heapq.heappush(self._due, (due, session.record.key))
        if len(self._due) > 2 * len(self._sessions) + _SPARE_HINTS:
            self._due = [(s.hint, key) for key, s in self._sessions.items()]
            heapq.heapify(self._due)
