"""How messages travel to the server: in a session that `initialize` opened, or without one (2026-07-28)."""

from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec

from limpet.checking.peer import GET_HEADERS, POST_HEADERS, Peer, TooManyRequests
from limpet.checking.seen_response import SeenResponse, Until
from limpet.protocol.mirrored_headers import encode_value
from limpet.protocol.sessionless import CAPABILITIES_KEY, CLIENT_KEY, NAMED, VERSION, VERSION_KEY
from limpet.transports.http import HttpAnswer

SESSION_VERSION: Final = "2025-11-25"
SESSION_HEADER: Final = "mcp-session-id"
VERSION_HEADER: Final = "mcp-protocol-version"
CLIENT: Final = {"name": "limpet check", "version": "1"}
LISTS: Final = ("tools", "prompts", "resources")
"""Capabilities that have a list. The list of X is asked with `X/list`, and its result has the member X."""
_UNFINISHED: Final = ("inputRequests", "requestState", "task")
"""Members of the result of a call that asks the client for input, or continues as a task."""
HEADER_SINCE: Final = "2025-06-18"
"""The first revision with the header MCP-Protocol-Version."""

Id = Any


class Question(NamedTuple):
    """A request that a probe may send, and the member of its result by which its own answer is recognised."""

    method: str
    params: dict[str, Any]
    member: str
    """Empty: a result without members, as that of `ping`."""
    mirrored: tuple[tuple[str, str], ...] = ()
    """Headers of 2026-07-28 that repeat arguments of the tool."""

    def fits(self, result: Any) -> bool:
        """Return whether a result can be the answer to this request."""
        if not isinstance(result, dict):
            return False
        if not self.member:
            return not any(name in result for name in (*LISTS, "content"))
        return self.member in result or (self.is_call and any(name in result for name in _UNFINISHED))

    @property
    def is_call(self) -> bool:
        """True for a tool call. It may fail without a fault of the protocol."""
        return self.method == "tools/call"

    def with_token(self, token: str) -> "Question":
        """Return the same request with a progress token."""
        return self._replace(params={**self.params, "_meta": {"progressToken": token}})


class Lane:
    """Sends requests in one session, or in none."""

    def __init__(
        self,
        peer: Peer,
        *,
        capabilities: Mapping[str, Any],
        version: str = VERSION,
        session: str = "",
        is_sessionless: bool = False,
    ) -> None:
        self.peer: Peer = peer
        self.version: str = version
        self.session: str = session
        """Empty if the server gave no session id."""
        self.capabilities: Mapping[str, Any] = capabilities
        self.is_sessionless: bool = is_sessionless
        """True for 2026-07-28."""
        self._ids = count(100)

    def questions(self) -> list[Question]:
        """Return the requests that every server answers without a side effect."""
        first = (
            Question("server/discover", {}, "supportedVersions")
            if self.is_sessionless
            else Question("ping", {}, "")
        )
        return [first, *(Question(f"{name}/list", {}, name) for name in LISTS if name in self.capabilities)]

    def next_id(self) -> int:
        """Return an id that was not used before on this lane."""
        return next(self._ids)

    def headers_of(self, question: Question) -> dict[str, str]:
        """Return the headers of a POST with this request."""
        made = self.headers(question.method, question.params)
        return {**made, **dict(question.mirrored)} if self.is_sessionless else made

    def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers of a POST with this method."""
        made = {**POST_HEADERS, **self.session_headers()}
        if self.is_sessionless:
            made["mcp-method"] = method
            name = params.get(NAMED.get(method, ""))
            if isinstance(name, str):
                made["mcp-name"] = encode_value(name)
        return made

    def session_headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        made = {VERSION_HEADER: self.version} if self.version >= HEADER_SINCE else {}
        return {**made, SESSION_HEADER: self.session} if self.session else made

    def body(self, id: Id, method: str, params: Mapping[str, Any]) -> bytes:  # noqa: A002 - JSON-RPC's name
        """Return a request as JSON."""
        made = dict(params)
        if method == "tools/call":
            # A progress token must be unique among the requests in work.
            made["_meta"] = made.get("_meta") or {"progressToken": self.peer.next_token()}
        if self.is_sessionless:
            described = {VERSION_KEY: VERSION, CLIENT_KEY: CLIENT, CAPABILITIES_KEY: {}}
            made["_meta"] = {**described, **(made.get("_meta") or {})}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": made})

    async def ask(
        self,
        question: Question,
        *,
        id: Id = None,  # noqa: A002 - JSON-RPC's name
        until: Until | None = None,
        seconds: float | None = None,
    ) -> SeenResponse:
        """Send a request and read its response."""
        used = self.next_id() if id is None else id
        headers = self.headers_of(question)
        body = self.body(used, question.method, question.params)
        return await self.peer.send("POST", headers, body, until=until, seconds=seconds)

    async def open(self, question: Question, *, id: Id = None) -> HttpAnswer:  # noqa: A002 - JSON-RPC's name
        """Send a request and leave its response unread."""
        used = self.next_id() if id is None else id
        headers = self.headers_of(question)
        return await self.peer.open("POST", headers, self.body(used, question.method, question.params))

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> SeenResponse:
        """Send a notification."""
        body = msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params or {}})
        return await self.peer.send("POST", self.headers(method, params or {}), body)

    def get_headers(self, after: str = "") -> dict[str, str]:
        """Return the headers of a GET; `after` is an event id to resume from."""
        made = {**GET_HEADERS, **self.session_headers()}
        return {**made, "last-event-id": after} if after else made

    async def delete(self, seconds: float | None = None) -> SeenResponse:
        """Ask the server to end the session."""
        return await self.peer.send("DELETE", self.session_headers(), seconds=seconds)


async def initialize(peer: Peer, version: str = SESSION_VERSION) -> tuple[SeenResponse, Lane | None]:
    """Open a session; None if the server refuses. The outcome is that of `initialize`."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    outcome = await peer.send("POST", POST_HEADERS, msgspec.json.encode(message))
    agreed = outcome.result
    if not isinstance(agreed, dict) or not isinstance(agreed.get("protocolVersion"), str):
        return outcome, None
    able = agreed.get("capabilities")
    lane = Lane(
        peer,
        version=agreed["protocolVersion"],
        session=outcome.headers.get(SESSION_HEADER, ("",))[0],
        capabilities=able if isinstance(able, dict) else {},
    )
    # If the server is busy, the session exists nevertheless, and must be deleted.
    with suppress(TooManyRequests):
        await lane.notify("notifications/initialized")
    return outcome, lane


async def discover(peer: Peer) -> tuple[SeenResponse, Lane | None]:
    """Ask a server of 2026-07-28 for itself; None if it does not speak this revision."""
    lane = Lane(peer, capabilities={}, is_sessionless=True)
    outcome = await lane.ask(Question("server/discover", {}, "supportedVersions"), id=1)
    found = outcome.result
    versions = found.get("supportedVersions") if isinstance(found, dict) else None
    if not isinstance(versions, list) or VERSION not in versions:
        return outcome, None
    able = found.get("capabilities")
    return outcome, Lane(peer, capabilities=able if isinstance(able, dict) else {}, is_sessionless=True)
