"""The head of an HTTP request: read once, checked in one place, before anything runs.

Pure decisions: headers in, a refusal or nothing out. A verdict depends only on the
values that it reads, and clients send the same values again and again: passed heads are remembered.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.config import HttpSettings
from holdfast.fronts.http.answer import Answer, refuse
from holdfast.protocol.versions import REVISIONS
from holdfast.wire.jsonrpc import RequestId

RawHeaders = list[tuple[bytes, bytes]]
Judged = tuple[bytes, bytes, bytes, bytes, bytes]
"""The headers that the checks read, besides the version: Host, Origin, Accept, Content-Type, Content-Encoding."""

_SINGLE: Final = (
    b"mcp-session-id",
    b"mcp-protocol-version",
    b"last-event-id",
    b"content-type",
    b"content-length",
    b"content-encoding",
    b"host",
    b"origin",
    b"authorization",
    b"idempotency-key",
)
"""Headers that may be sent once only: of two values, a proxy could use the first and this server the second.

The values of any other header are joined. If such a header repeats a part of the body, it then differs from the body, and
the request is refused.
"""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_REMEMBERED: Final = 1_024


class Head(Mapping[str, str]):
    """A request's headers. Several lines of one header are one value. Texts are Latin-1, as in HTTP."""

    __slots__ = ("_headers", "_values", "twice")

    def __init__(self, headers: RawHeaders) -> None:
        self._headers = headers
        self._values = dict(headers)
        self.twice: bytes = b""
        """A header that was sent twice although it may be sent once only; empty if every header is allowed."""
        if len(self._values) != len(headers):
            self._join(headers)

    def _join(self, headers: RawHeaders) -> None:
        """Join the lines of headers that were sent in several lines."""
        lines: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            lines.setdefault(name, []).append(value)
        self._values = {name: b", ".join(values) for name, values in lines.items()}
        self.twice = next((name for name in _SINGLE if len(lines.get(name, ())) > 1), b"")

    def changed(self, values: dict[bytes, bytes]) -> "Head":
        """Return this head with other values of some headers. Each of them must have been sent once."""
        head = Head.__new__(Head)
        head._headers, head.twice = self._headers, self.twice
        head._values = self._values | values
        return head

    @property
    def lines(self) -> RawHeaders:
        """The headers in the order in which they were sent, one for each line."""
        several = Counter(name for name, _ in self._headers)
        return [(name, value if several[name] > 1 else self._values[name]) for name, value in self._headers]

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower().encode("latin-1", "replace")].strip().decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._values)

    def __len__(self) -> int:
        return len(self._values)

    def has(self, name: bytes) -> bool:
        """True if the header was sent."""
        return name in self._values

    def text(self, name: bytes) -> str:
        """Return a header's value by its lower-case name; empty where it is absent."""
        return self._values.get(name, b"").decode("latin-1")

    @property
    def mirroring(self) -> tuple[bytes | None, bytes | None, bytes | None, bytes | None]:
        """The headers that mirror the body of every request of 2026-07-28, and its idempotency key."""
        get = self._values.get
        return (
            get(b"mcp-protocol-version"),
            get(b"mcp-method"),
            get(b"mcp-name"),
            get(b"idempotency-key"),
        )

    @property
    def judged(self) -> Judged:
        """The values that the checks read."""
        get = self._values.get
        return (
            get(b"host", b""),
            get(b"origin", b""),
            get(b"accept", b""),
            get(b"content-type", b""),
            get(b"content-encoding", b""),
        )


class HeadRules:
    """The rules of an endpoint for the head of a request."""

    def __init__(self, settings: HttpSettings) -> None:
        self._hosts = frozenset(host.lower() for host in settings.hosts)
        self._origins = frozenset(settings.allowed_origins)
        self._passed: set[tuple[str, Judged]] = set()

    def check(self, method: str, head: Head) -> Answer | None:
        """Return the refusal of a head that breaks a rule of this method; None if it passes."""
        if head.twice:
            return refuse(
                400, f"Bad request: the header {head.twice.decode()} is given twice", audit="malformed"
            )
        key = (method, head.judged)
        if key in self._passed:
            return None
        refused = self._judge(method, head)
        if refused is None and len(self._passed) < _REMEMBERED:
            self._passed.add(key)
        return refused

    def _judge(self, method: str, head: Head) -> Answer | None:
        origin = head.text(b"origin")
        if not self.host_allowed(head.text(b"host").lower()):
            return refuse(
                421, "Misdirected request: this Host is not served here; see allowed_hosts", audit="host"
            )
        if origin and not self.origin_allowed(origin):
            return refuse(
                403, "Forbidden: this Origin may not call here; see allowed_origins", audit="origin"
            )
        if method == "POST":
            return _judge_post(head)
        if method == "GET" and not _accepts(head)[1]:
            return refuse(406, "Not acceptable: Accept must list text/event-stream")
        return None

    def host_allowed(self, host: str) -> bool:
        """True if a Host header, in lower case, is one of the allowed ones, with or without its port."""
        return "*" in self._hosts or host in self._hosts or _without_port(host) in self._hosts

    def origin_allowed(self, origin: str) -> bool:
        """True if a browser page from `origin` may call: it is listed, or served from this machine."""
        if origin in self._origins:
            return True
        scheme, separator, host = origin.partition("://")
        return bool(separator) and scheme in {"http", "https"} and _without_port(host) in _LOOPBACK


def _judge_post(head: Head) -> Answer | None:
    if head.text(b"content-type").partition(";")[0].strip().lower() != "application/json":
        return refuse(
            415, "Unsupported media type: Content-Type must be application/json", audit="media_type"
        )
    if head.text(b"content-encoding").lower() not in {"", "identity"}:
        return refuse(
            415, "Unsupported media type: send the body without Content-Encoding", audit="media_type"
        )
    if _accepts(head) != (True, True):
        return refuse(406, "Not acceptable: Accept must list application/json and text/event-stream")
    return None


def check_version(version: str, request_id: RequestId | None = None) -> Answer | None:
    """Check the protocol version in the header of a request; without the header it passes."""
    if version and version not in REVISIONS:
        known = ", ".join(REVISIONS)
        return refuse(
            400,
            f"Bad request: unsupported MCP-Protocol-Version; supported: {known}",
            request_id=request_id,
        )
    return None


def _accepts(head: Head) -> tuple[bool, bool]:
    """Return whether JSON and whether event streams are acceptable."""
    ranges = {part.partition(";")[0].strip().lower() for part in head.text(b"accept").split(",")}
    everything = "*/*" in ranges
    json = everything or bool(ranges & {"application/json", "application/*"})
    stream = everything or bool(ranges & {"text/event-stream", "text/*"})
    return json, stream


def _without_port(host: str) -> str:
    """Return the host without its port."""
    name, separator, port = host.rpartition(":")
    return name if separator and port.isdecimal() and not name.endswith(":") else host
