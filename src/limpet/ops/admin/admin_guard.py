"""The guard of the admin surface: every request passes it.

The Host must be one of the allowed ones, so that a page of another site cannot reach the surface by a name that it
has bound to this address (DNS rebinding). A request of a browser has an Origin; it must be the surface itself. The
token is compared in constant time, and the right one always passes: others who share the operator's address must not be
able to lock the operator out. An address that has sent too many wrong tokens gets 429 for further ones. It may continue
to guess, and cannot succeed: a token has 16 characters or more.

Refusals and acts are events of the audit log, in the form of `engine/audit.py`. They have the same limits of lines as
the refusals of the MCP endpoint, so that an attacker cannot fill the disk.
"""

import hmac
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from limpet.config import HttpSettings, Rate
from limpet.core.call_rates import CallRates
from limpet.core.log_rates import LogRates
from limpet.engine.audit import TOTAL, Act, Reason
from limpet.fronts.http.decide.host_and_origin import HeadRules
from limpet.fronts.http.read.addresses import LOCAL, counted
from limpet.fronts.http.read.head import RawHeaders
from limpet.fronts.http.read.request import RawRequest
from limpet.ops.metrics import families
from limpet.ops.metrics.samples import Sample, number
from limpet.ports import Clock, Observer

GUESSES: Final = Rate(30, 60.0)
"""Wrong tokens of one address. A scraper with an old token, each 15 s, stays below it."""


class AdminRefusal(Exception):
    """The request gets this status and this text."""

    def __init__(self, status: int, error: str, headers: RawHeaders | None = None) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.headers: RawHeaders = headers or []


class AdminGuard:
    """Decides which requests are served, and reports to the audit log."""

    def __init__(self, token: str, allowed_hosts: Sequence[str], clock: Clock, observer: Observer) -> None:
        self._token = token.encode()
        self._rules = HeadRules(HttpSettings(allowed_hosts=allowed_hosts))
        self._clock = clock
        self._observer = observer
        self._guesses = CallRates("", reports=False)
        self._lines: dict[Reason, LogRates] = {}
        self._refusals: Counter[str] = Counter(admin_token=0, admin_rate=0, host=0, origin=0)
        self._acts: Counter[str] = Counter(session_closed=0, call_cancelled=0)

    def check_origin(self, request: RawRequest) -> None:
        """Refuse a Host that is not served here, and a page of another site.

        Raises:
            AdminRefusal: the request does not pass.
        """
        head = request.head
        host = head.text(b"host").lower()
        if head.twice:
            raise self._refusal(
                "malformed", request, 400, f"Bad request: the header {head.twice.decode()} is given twice"
            )
        if not self._rules.host_allowed(host):
            raise self._refusal(
                "host", request, 421, "Misdirected request: this Host is not served here; see --admin-host"
            )
        origin = head.text(b"origin").lower()
        if origin and origin not in {f"http://{host}", f"https://{host}"}:
            raise self._refusal("origin", request, 403, "Forbidden: only the dashboard itself may call here")

    def check_token(self, request: RawRequest) -> None:
        """Refuse a request without the token.

        Raises:
            AdminRefusal: the request does not pass.
        """
        given = request.head.text(b"authorization")
        if hmac.compare_digest(given.encode("latin-1"), b"Bearer " + self._token):
            return
        key, now = counted(_address(request)).encode(), self._clock.now()
        wait = self._guesses.wait(key, GUESSES, now)
        if wait:
            later = (b"retry-after", b"%d" % (wait + 1))
            raise self._refusal(
                "admin_rate", request, 429, "Too many wrong tokens of this address: try again later", later
            )
        if given:
            self._guesses.take(key, GUESSES, now)
        raise self._refusal(
            "admin_token",
            request,
            401,
            "Unauthorized: send the admin token as a bearer token",
            (b"www-authenticate", b"Bearer"),
        )

    def _refusal(
        self, reason: Reason, request: RawRequest, status: int, error: str, *headers: tuple[bytes, bytes]
    ) -> AdminRefusal:
        self.refused(reason, request.client)
        return AdminRefusal(status, error, list(headers))

    def refused(self, reason: Reason, address: str | None) -> None:
        """Report a refusal, unless the reason has too many lines already."""
        self._refusals[reason] += 1
        now, where = self._clock.now(), address or LOCAL
        lines = self._lines.get(reason)
        if lines is None:
            lines = self._lines[reason] = LogRates(now, TOTAL)
        left_out = lines.admit(where, now)
        if left_out is not None:
            facts = {"left_out": left_out} if left_out else {}
            self._observer.note("audit.refused", reason=reason, address=where, surface="admin", **facts)

    def done(self, act: Act, request: RawRequest, **facts: str) -> None:
        """Report an act of an operator. Each has its line."""
        self._acts[act] += 1
        self._observer.note("audit.done", act=act, address=_address(request), **facts)

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of the surface itself. They belong to no server."""
        for reason, count in self._refusals.items():
            yield number(families.REFUSALS, count, "", reason)
        for act, count in self._acts.items():
            yield number(families.ACTS, count, "", act)


def _address(request: RawRequest) -> str:
    return request.client or LOCAL
