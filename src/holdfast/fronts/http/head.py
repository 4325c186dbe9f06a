"""The head of an HTTP request: read once, checked in one place, before anything is done.

Pure decisions: headers in, a refusal or nothing out. A verdict depends on nothing but the
values it looks at, and clients send the same values again and again: passed heads are remembered.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.config import HttpSettings
from holdfast.fronts.http.answer import Answer, refuse
from holdfast.protocol.versions import REVISIONS
from holdfast.wire.jsonrpc import RequestId

RawHeaders = list[tuple[bytes, bytes]]
Judged = tuple[bytes, bytes, bytes, bytes, bytes]
"""The headers a verdict depends on, besides the version: Host, Origin, Accept, Content-Type, Content-Encoding."""

_KNOWN: Final = frozenset(
    {
        b"mcp-session-id",
        b"mcp-protocol-version",
        b"mcp-method",
        b"mcp-name",
        b"last-event-id",
        b"content-type",
        b"content-length",
        b"content-encoding",
        b"accept",
        b"host",
        b"origin",
        b"authorization",
    }
)
_LISTS: Final = frozenset({b"accept", b"mcp-method", b"mcp-name"})
"""Headers that are read as one value when sent in several lines; one that mirrors a part of the body then differs."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_REMEMBERED: Final = 1_024


class Head:
    """The headers the protocol knows. Texts are Latin-1, as HTTP has it; empty where absent."""

    __slots__ = ("_raw", "_values", "twice")

    def __init__(self, headers: RawHeaders) -> None:
        values: dict[bytes, bytes] = {}
        self._raw = headers
        self._values = values
        self.twice = b""
        for name, value in headers:
            if name in _KNOWN:
                if name in values:
                    self._again(name, value)
                else:
                    values[name] = value

    def _again(self, name: bytes, value: bytes) -> None:
        if name in _LISTS:
            self._values[name] += b", " + value
        else:
            self.twice = name

    def get(self, name: str) -> str | None:
        """Return the value of any header by lower-case name; None where it is not given."""
        wanted = name.encode("latin-1")
        if wanted in _KNOWN:
            known = self._values.get(wanted)
            return known.strip().decode("latin-1") if known is not None else None
        found = [value for key, value in self._raw if key == wanted]
        return b", ".join(found).strip().decode("latin-1") if found else None

    def has(self, name: bytes) -> bool:
        """Tell whether a known header is given."""
        return name in self._values

    def text(self, name: bytes) -> str:
        """Return a header's value."""
        return self._values.get(name, b"").decode("latin-1")

    @property
    def judged(self) -> Judged:
        """The values a verdict depends on."""
        get = self._values.get
        return (
            get(b"host", b""),
            get(b"origin", b""),
            get(b"accept", b""),
            get(b"content-type", b""),
            get(b"content-encoding", b""),
        )


class Headers(Mapping[str, str]):
    """All request headers, by lower-case name; decoded when somebody looks."""

    __slots__ = ("_raw",)

    def __init__(self, raw: RawHeaders) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        wanted = name.lower().encode("latin-1", "replace")
        for key, value in self._raw:
            if key == wanted:
                return value.decode("latin-1")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key.decode("latin-1") for key, _ in self._raw))

    def __len__(self) -> int:
        return len({key for key, _ in self._raw})


class HeadRules:
    """What an endpoint demands of a request's head."""

    def __init__(self, settings: HttpSettings) -> None:
        self._hosts = frozenset(host.lower() for host in settings.allowed_hosts)
        self._origins = frozenset(settings.allowed_origins)
        self._passed: set[tuple[str, Judged]] = set()

    def check(self, method: str, head: Head) -> Answer | None:
        """Return the refusal of a head that breaks a rule of this method; None if it passes."""
        if head.twice:
            return refuse(400, f"Bad request: the header {head.twice.decode()} is given twice")
        key = (method, head.judged)
        if key in self._passed:
            return None
        refused = self._judge(method, head)
        if refused is None and len(self._passed) < _REMEMBERED:
            self._passed.add(key)
        return refused

    def _judge(self, method: str, head: Head) -> Answer | None:
        origin = head.text(b"origin")
        if not self._host_allowed(head.text(b"host").lower()):
            return refuse(421, "Misdirected request: this Host is not served here; see allowed_hosts")
        if origin and not self.origin_allowed(origin):
            return refuse(403, "Forbidden: this Origin may not call here; see allowed_origins")
        if method == "POST":
            return _judge_post(head)
        if method == "GET" and not _accepts(head)[1]:
            return refuse(406, "Not acceptable: Accept must list text/event-stream")
        return None

    def _host_allowed(self, host: str) -> bool:
        return "*" in self._hosts or host in self._hosts or _without_port(host) in self._hosts

    def origin_allowed(self, origin: str) -> bool:
        """Tell whether a browser page from `origin` may call: it is listed, or served from this machine."""
        if origin in self._origins:
            return True
        scheme, separator, host = origin.partition("://")
        return bool(separator) and scheme in {"http", "https"} and _without_port(host) in _LOOPBACK


def _judge_post(head: Head) -> Answer | None:
    if head.text(b"content-type").partition(";")[0].strip().lower() != "application/json":
        return refuse(415, "Unsupported media type: Content-Type must be application/json")
    if head.text(b"content-encoding").lower() not in {"", "identity"}:
        return refuse(415, "Unsupported media type: send the body without Content-Encoding")
    if _accepts(head) != (True, True):
        return refuse(406, "Not acceptable: Accept must list application/json and text/event-stream")
    return None


def check_version(version: str, request_id: RequestId | None = None) -> Answer | None:
    """Check the negotiated version a request names; naming none is allowed."""
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
    """Return the host without a port; the text itself where what follows the colon is no port."""
    name, separator, port = host.rpartition(":")
    return name if separator and port.isdecimal() and not name.endswith(":") else host
