"""Messages, headers and server-sent events as a client writes and reads them. Every client of the tests uses these."""

import json
from typing import Any, Final, NamedTuple

Json = Any
JSON_TYPE: Final = "application/json"
BOTH: Final = "application/json, text/event-stream"
LATEST: Final = "2025-11-25"
"""The newest revision with sessions."""
MODERN: Final = "2026-07-28"
"""The revision without sessions."""
PREFIX: Final = "io.modelcontextprotocol/"
NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Which parameter of a method the header Mcp-Name repeats (2026-07-28)."""


def request(id: Json, method: str, params: Json = None) -> Json:  # noqa: A002 - the protocol's word
    """Return a request."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def notification(method: str, params: Json = None) -> Json:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params or {}}


def initialize(version: str = LATEST, *, capabilities: Json = None, client: str = "test") -> Json:
    """Return the params of an `initialize`."""
    info = {"name": client, "version": "1"}
    return {"protocolVersion": version, "clientInfo": info, "capabilities": capabilities or {}}


def metadata(*, capabilities: Json = None, client: str = "test") -> Json:
    """Return the `_meta` that every request of 2026-07-28 carries."""
    return {
        f"{PREFIX}protocolVersion": MODERN,
        f"{PREFIX}clientInfo": {"name": client, "version": "1"},
        f"{PREFIX}clientCapabilities": capabilities or {},
    }


def modern_headers(method: str, params: Json) -> dict[str, str]:
    """Return the headers of a request of 2026-07-28: its revision, and the parts of its body that they repeat."""
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
    if method in NAMED:
        headers["mcp-name"] = str(params.get(NAMED[method], ""))
    return headers


class Event(NamedTuple):
    """One server-sent event, or a comment."""

    id: str
    data: str
    retry: str = ""
    comment: str = ""

    @property
    def message(self) -> Json:
        return json.loads(self.data)

    @property
    def is_mark(self) -> bool:
        """True for the event that only gives clients of older revisions a position."""
        return bool(self.id) and f'"requestId":"{self.id.partition(".")[0]}"' in self.data


def parse_event(block: str) -> Event:
    """Parse one event of a stream: its text up to the empty line."""
    fields = {"id": "", "data": "", "retry": "", "comment": ""}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        name = name or "comment"
        if name in fields:
            fields[name] += value.removeprefix(" ")
    return Event(fields["id"], fields["data"], fields["retry"], fields["comment"])
