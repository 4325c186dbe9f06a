"""The rules for the head of a request, checked before anything runs: Host, Origin, Content-Type, Accept, version.

And CORS.

Pure decisions: headers in, a refusal or nothing out. A verdict depends only on the
values that it reads, and clients send the same values again and again: passed heads are remembered.
"""

from typing import Final

from limpet.config import HttpSettings
from limpet.fronts.http.read.head import Head, Judged
from limpet.fronts.http.write.answer import Answer, refuse
from limpet.protocol.versions import REVISIONS
from limpet.wire.jsonrpc import RequestId

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_REMEMBERED: Final = 1_024
_REQUEST_HEADERS: Final = b"authorization, content-type, accept, mcp-session-id, mcp-protocol-version, last-event-id, mcp-method, mcp-name"
_DAY: Final = b"86400"


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


# CORS: the headers with which a browser lets a page of an allowed origin call this endpoint


def cors_headers(origin: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a page of this origin read the answer. The origin was checked before."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (
            b"access-control-expose-headers",
            b"mcp-session-id, mcp-protocol-version, retry-after, www-authenticate, limpet-refused",
        ),
        (b"vary", b"origin"),
    ]


def preflight(methods: str) -> Answer:
    """Return the answer to a preflight request, without the headers that every answer gets."""
    return Answer(
        204,
        [
            (b"access-control-allow-methods", methods.encode()),
            (b"access-control-allow-headers", _REQUEST_HEADERS),
            (b"access-control-max-age", _DAY),
        ],
    )
