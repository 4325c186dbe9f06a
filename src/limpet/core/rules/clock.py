"""When a session ends, and how the signs of its client change this."""

from math import inf
from typing import Final

from limpet.core.lifecycle import SessionInput, SessionState, step
from limpet.core.records import SessionRecord, Status

RECHECK_SECONDS: Final = 1.0
"""A session that is due and still has work is examined again after this time."""


class SessionClock:
    """When a session ends, and how the signs of its client change this. Inherit it, with these attributes."""

    # The subclass has the slots. Written as a call, so that mypy accepts the assignments below.
    __slots__ = tuple[str, ...]()

    record: SessionRecord
    state: SessionState
    opened: float
    touched: float
    """The last sign of the client."""
    settled: float
    """When the last exchange ended; 0 if none has."""
    broke: float
    """When the last reader broke; 0 if none has."""
    readers: int
    running: int
    """Exchanges in flight."""

    def due(self) -> tuple[float, SessionInput]:
        """Return when the session ends if nothing happens before, and why."""
        if self.state is SessionState.DETACHED:
            ends = max(self.broke, self.settled) + self.record.grace, SessionInput.GRACE_OVER
        elif self.readers:
            ends = inf, SessionInput.IDLE
        else:
            ends = self.touched + self.record.idle, SessionInput.IDLE
        expires = self.opened + self.record.lifetime
        return ends if ends[0] <= expires else (expires, SessionInput.EXPIRED)

    def ends_now(self, now: float) -> SessionInput | None:
        """Return why the session ends now; None if it does not. Work counts as life (law 8)."""
        at, reason = self.due()
        return reason if at <= now and not self.running else None

    def next_look(self, now: float) -> float:
        """Return when to examine a session again that does not end now."""
        at, _ = self.due()
        return at if at > now else now + RECHECK_SECONDS

    def status(self, now: float, *, log_bytes: int, kept_bytes: int) -> Status:
        """Return the view of an operator on the session."""
        ends, _ = self.due()
        closes_in = None if self.running else max(0.0, ends - now)
        quiet = max(0.0, now - max(self.touched, self.settled))
        return Status(
            self.record,
            self.state,
            closes_in,
            int(self.readers),
            int(self.running),
            log_bytes,
            kept_bytes,
            quiet,
        )

    def client_seen(self, now: float) -> bool:
        """Record a sign of the client. Returns True if the session was detached, and is attached again."""
        self.touched = now
        if self.state is not SessionState.DETACHED:
            return False
        self.state = step(self.state, SessionInput.RETURNED)
        return True

    def reader_lost(self, now: float, *, broke: bool) -> bool:
        """Record that a stream has lost its reader. Returns True if this break made the session detached."""
        self.readers -= 1
        self.touched = now
        if not broke or self.readers:
            return False
        self.broke = now
        before = self.state
        self.state = step(before, SessionInput.BROKE)
        return self.state is not before
