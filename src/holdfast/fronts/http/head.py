"""The head of an HTTP request: read once, checked in one place, before anything is done.

Pure decisions: headers in, a refusal or nothing out.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.config import HttpSettings
from holdfast.fronts.http.answer import Answer, refuse
from holdfast.protocol.versions import REVISIONS

RawHeaders = list[tuple[bytes, bytes]]

_SINGLE: Final = {
    b"mcp-session-id": "session_id",
    b"mcp-protocol-version": "version",
    b"last-event-id": "last_event_id",
    b"content-type": "content_type",
    b"content-length": "content_length",
    b"content-encoding": "content_encoding",
    b"accept": "accept",
    b"host": "host",
    b"origin": "origin",
    b"authorization": "authorization",
}
_LISTS: Final = frozenset({"accept"})
"""Headers that may be sent in several lines."""


class Head:
    """The headers the protocol knows, decoded as Latin-1 as HTTP has it; empty where absent."""

    __slots__ = (*_SINGLE.values(), "twice")

    def __init__(self, headers: RawHeaders) -> None:
        self.session_id = self.version = self.last_event_id = ""
        self.content_type = self.content_length = self.content_encoding = ""
        self.accept = self.host = self.origin = self.authorization = ""
        self.twice = ""
        for name, value in headers:
            slot = _SINGLE.get(name)
            if slot is None:
                continue
            text = value.decode("latin-1")
            before: str = getattr(self, slot)
            if before and slot in _LISTS:
                text = f"{before}, {text}"
            elif before:
                self.twice = name.decode()
            setattr(self, slot, text)


class Headers(Mapping[str, str]):
    """All request headers, by lower-case name; decoded when somebody looks."""

    __slots__ = ("_raw",)

    def __init__(self, raw: RawHeaders) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        wanted = name.lower().encode("latin-1")
        for key, value in self._raw:
            if key == wanted:
                return value.decode("latin-1")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key.decode("latin-1") for key, _ in self._raw))

    def __len__(self) -> int:
        return len({key for key, _ in self._raw})


class HeadRules:
    """What an endpoint demands of a request's head. Verdicts on common values are remembered."""

    _REMEMBERED: Final = 1_024

    def __init__(self, settings: HttpSettings) -> None:
        self._any_host = "*" in settings.allowed_hosts
        self._hosts = frozenset(host.lower() for host in settings.allowed_hosts)
        self._origins = frozenset(settings.allowed_origins)
        self._known_hosts: dict[str, bool] = {}
        self._known_accepts: dict[str, tuple[bool, bool]] = {}

    def check(self, head: Head) -> Answer | None:
        """Check what every request must have: no doubled header, a Host and an Origin that may be served."""
        if head.twice:
            return refuse(400, f"Bad request: the header {head.twice} is given twice")
        if not self._any_host and not self._host_allowed(head.host):
            return refuse(421, "Misdirected request: this Host is not served here; see allowed_hosts")
        if head.origin and not self.origin_allowed(head.origin):
            return refuse(403, "Forbidden: this Origin may not call here; see allowed_origins")
        return None

    def check_post(self, head: Head) -> Answer | None:
        """Check a POST: JSON in, JSON or a stream out."""
        if head.content_type != "application/json" and not _is_json(head.content_type):
            return refuse(415, "Unsupported media type: Content-Type must be application/json")
        if head.content_encoding and head.content_encoding != "identity":
            return refuse(415, "Unsupported media type: send the body without Content-Encoding")
        if self._accepts(head.accept) != (True, True):
            return refuse(406, "Not acceptable: Accept must list application/json and text/event-stream")
        return None

    def check_get(self, head: Head) -> Answer | None:
        """Check a GET: a stream out."""
        if not self._accepts(head.accept)[1]:
            return refuse(406, "Not acceptable: Accept must list text/event-stream")
        return None

    def check_version(self, head: Head) -> Answer | None:
        """Check the negotiated version a request names; naming none is allowed."""
        if head.version and head.version not in REVISIONS:
            known = ", ".join(REVISIONS)
            return refuse(400, f"Bad request: unsupported MCP-Protocol-Version; supported: {known}")
        return None

    def origin_allowed(self, origin: str) -> bool:
        """Tell whether a browser page from `origin` may call: listed, or served from this machine."""
        if origin in self._origins:
            return True
        scheme, separator, host = origin.partition("://")
        return bool(separator) and scheme in {"http", "https"} and _without_port(host) in _LOOPBACK

    def _host_allowed(self, host: str) -> bool:
        allowed = self._known_hosts.get(host)
        if allowed is None:
            lower = host.lower()
            allowed = lower in self._hosts or _without_port(lower) in self._hosts
            if len(self._known_hosts) < self._REMEMBERED:
                self._known_hosts[host] = allowed
        return allowed

    def _accepts(self, accept: str) -> tuple[bool, bool]:
        """Return whether JSON and whether event streams are acceptable."""
        accepts = self._known_accepts.get(accept)
        if accepts is None:
            ranges = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
            everything = "*/*" in ranges
            json = everything or bool(ranges & {"application/json", "application/*"})
            stream = everything or bool(ranges & {"text/event-stream", "text/*"})
            accepts = (json, stream)
            if len(self._known_accepts) < self._REMEMBERED:
                self._known_accepts[accept] = accepts
        return accepts


_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


def _without_port(host: str) -> str:
    """Return the host without a port; the text itself where what follows the colon is no port."""
    name, separator, port = host.rpartition(":")
    return name if separator and port.isdecimal() and not name.endswith(":") else host


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"
