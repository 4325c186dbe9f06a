"""What the probes share: the eras that the server speaks, the tool that may be called, and new sessions.

A session that a probe opens is deleted at the end of the probe.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from holdfast.checking.lane import Lane, Question, discover, initialize
from holdfast.checking.peer import Outcome, Peer
from holdfast.errors import ConfigError, HoldfastError, NotSent
from holdfast.protocol.sessionless import SERVER_KEY

_UNAUTHORIZED: Final = (401, 403)
_SAMPLES: Final[dict[str, Any]] = {
    "string": "check", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "null": None,
}  # fmt: skip
_PAGES: Final = 20
_DELETE_SECONDS: Final = 2.0
"""How long a server may take to delete a session. The check does not wait longer for a server that hangs."""
NO_TOOL: Final = (
    "it needs a tool call, and no tool is annotated read-only: name one with --tool (and --arguments)"
)


class Failed(HoldfastError):
    """The server does not do what the probe expects."""


class NotApplicable(HoldfastError):
    """The server has nothing to which the probe applies."""


class Ground:
    """A server that is being checked."""

    def __init__(self, peer: Peer) -> None:
        self.peer: Peer = peer
        self.unreachable: str = ""
        """Why no probe can run; empty: they can."""
        self.server: str = ""
        self.versions: list[str] = []
        self.tool: Question | None = None
        """The call that the probes may send."""
        self.tool_name: str = ""
        self.has_sessions: bool = False
        """The server answers `initialize`."""
        self.is_sessionless: bool = False
        """The server speaks 2026-07-28."""
        self.handshake: Outcome = Outcome()
        self.discovery: Outcome = Outcome()
        self._lanes: list[Lane] = []

    async def survey(self, tool: str, arguments: Mapping[str, Any] | None) -> None:
        """Find the eras, the name of the server and the tool, or the reason why no probe can run.

        Raises:
            ConfigError: the server has no tool of the given name.
        """
        try:
            self.discovery, without = await discover(self.peer)
            self.handshake, session = await initialize(self.peer)
        except NotSent as error:
            self.unreachable = str(error)
            return
        if session is not None:
            self._lanes.append(session)
        self.is_sessionless, self.has_sessions = without is not None, session is not None
        lane = session or without
        if lane is None:
            self.unreachable = _reason(self.handshake)
            return
        self.versions = [one.version for one in (session, without) if one is not None]
        self.server = _name(self.handshake.result, self.discovery.result)
        await self._choose(lane, tool, arguments)

    async def lane(self) -> Lane:
        """Return a lane of its own for a probe: a new session if the server has sessions."""
        if self.has_sessions:
            return await self._session()
        return await self.without_session()

    async def initialized(self) -> Lane:
        """Return a lane after `initialize`, with or without a session id.

        Raises:
            NotApplicable: the server has no `initialize`.
        """
        if not self.has_sessions:
            raise NotApplicable("the server speaks only 2026-07-28, which has no sessions")
        return await self._session()

    async def session(self) -> Lane:
        """Return a new session with an id.

        Raises:
            NotApplicable: the server has no sessions.
        """
        lane = await self.initialized()
        if not lane.session:
            raise NotApplicable("the server gives no session id, so it keeps no session")
        return lane

    async def without_session(self) -> Lane:
        """Return a lane of 2026-07-28.

        Raises:
            NotApplicable: the server does not speak it.
        """
        if not self.is_sessionless:
            raise NotApplicable("the server does not speak 2026-07-28")
        _, lane = await discover(self.peer)
        if lane is None:
            raise Failed("the server answered server/discover before, and does not answer it now")
        return lane

    def call(self) -> Question:
        """Return the tool call.

        Raises:
            NotApplicable: no tool may be called.
        """
        if self.tool is None:
            raise NotApplicable(NO_TOOL)
        return self.tool

    def questions(self, lane: Lane) -> list[Question]:
        """Return every kind of request that a probe may send."""
        return [*lane.questions(), *([self.tool] if self.tool else [])]

    def keep(self, lane: Lane) -> None:
        """Delete this session at the end of the probe, too."""
        self._lanes.append(lane)

    async def release(self) -> None:
        """Close the responses and delete the sessions of a probe."""
        self.peer.release()
        lanes, self._lanes = self._lanes, []
        await asyncio.gather(*(lane.delete(_DELETE_SECONDS) for lane in lanes if lane.session))

    async def _session(self) -> Lane:
        outcome, lane = await initialize(self.peer)
        if lane is None:
            raise Failed(f"a new session was refused: {outcome}")
        self._lanes.append(lane)
        return lane

    async def _choose(self, lane: Lane, tool: str, arguments: Mapping[str, Any] | None) -> None:
        tools = await _tools(lane) if "tools" in lane.capabilities else []
        if tool and not any(one.get("name") == tool for one in tools):
            known = ", ".join(str(one.get("name")) for one in tools[:20]) or "no tool"
            raise ConfigError(f"the server has no tool {tool!r}; it has {known}")
        given = arguments
        if not tool:
            found = _read_only(tools)
            if found is None:
                return
            tool, given = found
        params = {"name": tool, "arguments": dict(given or {}), "_meta": {"progressToken": "holdfast-check"}}
        self.tool, self.tool_name = Question("tools/call", params, "content"), tool


async def _tools(lane: Lane) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    for _ in range(_PAGES):
        outcome = await lane.ask(Question("tools/list", cursor, "tools"))
        result = outcome.result if isinstance(outcome.result, dict) else {}
        found = result.get("tools")
        tools += [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        following = result.get("nextCursor")
        if not isinstance(following, str):
            break
        cursor = {"cursor": following}
    return tools


def _read_only(tools: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
    """Return the read-only tool that needs the fewest arguments, with values for them."""
    found: list[tuple[str, dict[str, Any]]] = []
    for tool in tools:
        hints = tool.get("annotations")
        schema = tool.get("inputSchema")
        if isinstance(hints, dict) and hints.get("readOnlyHint") is True and isinstance(schema, dict):
            sample = _sample(schema)
            if sample is not None:
                found.append((str(tool.get("name")), sample))
    return min(found, key=lambda one: len(one[1]), default=None)


def _sample(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return values for the required arguments; None if a schema is not a plain one."""
    properties = schema.get("properties")
    made: dict[str, Any] = {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        member = properties.get(name) if isinstance(properties, dict) and isinstance(name, str) else None
        if not isinstance(member, dict):
            return None
        if "default" in member:
            made[name] = member["default"]
        elif isinstance(member.get("enum"), list) and member["enum"]:
            made[name] = member["enum"][0]
        elif isinstance(member.get("type"), str) and member["type"] in _SAMPLES:
            made[name] = _SAMPLES[member["type"]]
        else:
            return None
    return made


def _reason(outcome: Outcome) -> str:
    if outcome.status in _UNAUTHORIZED:
        return f"the server refuses access ({outcome}): give a token with --token-file or --token-env"
    moved = "".join(f", to {place}" for place in outcome.headers.get("location", ()))
    return f"initialize got {outcome}{moved}"


def _name(handshake: Any, discovery: Any) -> str:
    info = handshake.get("serverInfo") if isinstance(handshake, dict) else None
    if info is None and isinstance(discovery, dict) and isinstance(discovery.get("_meta"), dict):
        info = discovery["_meta"].get(SERVER_KEY)
    if not isinstance(info, dict):
        return "unnamed"
    return f"{info.get('name', 'unnamed')} {info.get('version', '')}".strip()
