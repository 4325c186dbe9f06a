"""Audit: each refusal and each administrative act is one event, for operators who watch for attacks.

`REASONS` is the one table of refusals, `ACTS` the one of administrative acts. Every front reports through this module,
so that the log and the metrics count the same things under the same names. An event has the reason, the address of the
client and a short hash of its principal, as log lines do for sessions. It never has a token, a session id, a name that
a client chose, or anything of a message.

An attacker must not be able to fill the disk, or to hide one kind of refusal behind many of another kind. So each
reason has its own limit of lines, for each address and in total (`core/log_rates.py`). Events above the limit are
counted and reported as a number (`sweep`). `counts` counts all events.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, get_args

from limpet.core.log_rates import LogRates
from limpet.errors import (
    Busy,
    InsufficientScope,
    LimpetError,
    ParkedGone,
    RateLimit,
    RateLimited,
    SessionGone,
    Stopping,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    TooManySessions,
    Unresumable,
    UpstreamUnavailable,
    WireError,
    Withdrawn,
)

if TYPE_CHECKING:
    from limpet.engine.runtime import Runtime

Reason = Literal[
    "token", "scope", "anonymous", "origin", "host", "session", "event_id", "request_state", "malformed", "media_type",
    "too_large", "slow", "busy", "store", "rate_principal", "rate_tool", "rate_address", "sessions", "connections",
    "admin_token", "admin_rate",
]  # fmt: skip
Act = Literal["session_deleted", "session_closed", "call_cancelled", "key_changed"]

REASONS: Final[dict[Reason, str]] = {
    "token": "401: no token, or one that is not valid or has expired",
    "scope": "403: the token lacks a scope that the component needs",
    "anonymous": "403: a client without a token, from another machine",
    "origin": "403: an Origin that is not allowed",
    "host": "421: a Host that is not allowed",
    "session": "404: the session belongs to another principal",
    "event_id": "400: a Last-Event-ID that is not a position of this session",
    "request_state": "400, −31003: a requestState that is forged, expired or of another request",
    "malformed": "400: a head or a message that breaks HTTP, JSON or JSON-RPC",
    "media_type": "415: a Content-Type or Content-Encoding that is not served",
    "too_large": "413 or 431: a message or a head above its limit",
    "slow": "408: a head or a body that took too long",
    "busy": "429: a limit of calls or of memory is reached",
    "store": "503: the store is unavailable",
    "rate_principal": "429: a principal has reached its rate of calls",
    "rate_tool": "429: a tool has reached its rate of calls",
    "rate_address": "429: too many requests of an address were refused",
    "sessions": "503: too many sessions",
    "connections": "503: too many connections; or an idle connection was closed for a new one",
    "admin_token": "401: a request to the admin surface without its token, or with another one",
    "admin_rate": "429: too many wrong admin tokens of an address",
}
"""The reasons for refusals, each with the response."""
JOINED: Final[frozenset[Reason]] = frozenset(
    {"busy", "store", "rate_principal", "rate_tool", "rate_address", "sessions"}
)
"""Refusals that a client may ask its operator about: their lines have a correlation id, which the client receives
too."""
ACTS: Final[dict[Act, str]] = {
    "session_deleted": "a client has deleted its session",
    "session_closed": "an operator has closed a session",
    "call_cancelled": "an operator has cancelled a call",
    "key_changed": "another key seals the state of suspended calls from now on",
}
"""The administrative acts."""

TOTAL: Final = 3
"""How many times more lines a reason may have from all addresses together than from one address."""
_LOOKUPS: Final = 100
"""Lookups of the sessions of refused requests that run at once; beyond: the refusal is not reported."""
_REPORT_SECONDS: Final = 10.0
"""How often the number of events without a line is reported."""

_OF_LIMITS: Final[dict[RateLimit, Reason]] = {
    "principal": "rate_principal",
    "tool": "rate_tool",
    "address": "rate_address",
}
_OF_ERRORS: Final[tuple[tuple[type[LimpetError], Reason], ...]] = (
    (WireError, "malformed"),
    (SessionGone, "session"),
    (Unresumable, "event_id"),
    (ParkedGone, "request_state"),
    (InsufficientScope, "scope"),
    (Busy, "busy"),
    (StoreUnavailable, "store"),
    (TooManySessions, "sessions"),
)


def reason_of(error: LimpetError) -> Reason | None:
    """Return the reason of a refusal by its exception; None: it is an answer or a failure, not a refusal."""
    if isinstance(error, StoreBusy | Stopping | UpstreamUnavailable | Withdrawn):
        return None
    if isinstance(error, RateLimited):
        return _OF_LIMITS[error.limit]
    return next((reason for kind, reason in _OF_ERRORS if isinstance(error, kind)), None)


def short(key: str) -> str:
    """Return the short name of a session or principal in the log: the first characters of the hash that is its key."""
    return key[:8]


class Audit:
    """Reports refusals and administrative acts to the observer, up to a rate."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        now = runtime.clock.now()
        self.counts: Counter[Reason | Act] = Counter()
        """How often each refusal and act has happened, including those without a line."""
        self._lines: dict[str, LogRates] = {
            name: LogRates(now, TOTAL) for name in (*get_args(Reason), "session_deleted")
        }
        self._lookups = 0
        self._suppressed: Counter[Reason | Act] = Counter()
        self._reported_at = now

    def refused(self, reason: Reason, address: str, principal: str = "", session: str = "") -> str:
        """Report a refusal. `principal` and `session` are keys; they are empty if the request has none.

        Returns the correlation id of its line; empty if the line has none, or was left out.

        Only a request for a session of another principal is reported: a session that does not exist is no attack. The
        client cannot notice the difference, because the store is asked after its answer was written.
        """
        if reason != "session":
            return self._report(reason, address, principal, session)
        if self._lookups < _LOOKUPS:
            self._lookups += 1
            self._runtime.spawn(self._foreign(address, principal, session))
        return ""

    async def _foreign(self, address: str, principal: str, session: str) -> None:
        try:
            if await self._runtime.store.look(session) is None:
                return
        except StoreError:
            return
        finally:
            self._lookups -= 1
        self._report("session", address, principal, session)

    def _report(self, reason: Reason, address: str, principal: str, session: str = "") -> str:
        if not self._count(reason, address):
            return ""
        correlation = self._runtime.random.token(6) if reason in JOINED else ""
        self._note(
            "audit.refused",
            reason=reason,
            address=address,
            principal=principal,
            session=session,
            correlation=correlation,
        )
        return correlation

    def done(self, act: Act, address: str = "", principal: str = "", session: str = "") -> None:
        """Report an administrative act.

        The lines for acts of clients are limited, those for acts of operators are not.
        """
        if self._count(act, address):
            self._note("audit.done", act=act, address=address, principal=principal, session=session)

    def _count(self, event: Reason | Act, address: str) -> bool:
        """Count an event. True if it gets a line."""
        self.counts[event] += 1
        lines = self._lines.get(event)
        if lines is None or lines.admit(address, self._runtime.clock.now()) is not None:
            return True
        self._suppressed[event] += 1
        return False

    def _note(self, event: str, *, principal: str, session: str, **facts: str) -> None:
        facts |= {"principal": short(principal), "session": short(session)}
        self._runtime.observer.note(event, **{name: value for name, value in facts.items() if value})

    async def sweep(self) -> None:
        """Report how many events have no line, from time to time."""
        now = self._runtime.clock.now()
        if self._suppressed and now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            suppressed, self._suppressed = self._suppressed, Counter()
            for event, count in suppressed.items():
                self._runtime.observer.note("audit.suppressed", of=event, count=count)
