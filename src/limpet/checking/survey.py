"""The first look at a server: the eras that it speaks, the lists that it answers, and the tool that may be called.

The chosen tool is called once. Its duration says how long parallel calls may take: a slow tool is not a fault of the
server.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct, field

from limpet.checking.lane import Lane, Question, discover, initialize
from limpet.checking.peer import Peer
from limpet.checking.seen_response import NO_ANSWER, SHOWN, SeenResponse
from limpet.errors import ConfigError, NotSent
from limpet.protocol.mirrored_headers import encode_value, mirrored_parameters, values_of
from limpet.protocol.sessionless import SERVER_KEY

UNAUTHORIZED: Final = (401, 403)
NO_TOOL: Final = (
    "it needs a tool call, and no tool is annotated read-only: name one with --tool (and --arguments)"
)
_SAMPLES: Final[dict[str, Any]] = {
    "string": "check", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "null": None,
}  # fmt: skip
_PAGES: Final = 200
_CANDIDATES: Final = 3
"""How many read-only tools are tried, until one returns a result without an error."""
_NAMED: Final = 20


class Facts(Struct):
    """The answers of the survey."""

    unreachable: str = ""
    """Why no probe can run; empty: they can."""
    server: str = ""
    versions: list[str] = field(default_factory=list)
    has_sessions: bool = False
    """The server answers `initialize`."""
    is_sessionless: bool = False
    """The server speaks 2026-07-28."""
    handshake: SeenResponse = field(default_factory=SeenResponse)
    discovery: SeenResponse = field(default_factory=SeenResponse)
    unanswered: dict[str, str] = field(default_factory=dict)
    """The declared lists that the server does not return, each with its response. Probes do not use them."""
    tool: Question | None = None
    """The call that the probes may send."""
    tool_name: str = ""
    no_tool: str = NO_TOOL
    """Why no tool may be called."""
    call_seconds: float | None = None
    """How long the call took; None: it was not answered in time."""
    call_steps: int = 0
    """The progress messages of the call."""
    call_note: str = ""
    """Why a probe cannot wait for the answer of the call."""


class Survey:
    """Asks a server for its facts. The sessions that it opens are in `lanes`."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.facts: Facts = Facts()
        self.lanes: list[Lane] = []

    async def run(self, tool: str, arguments: Mapping[str, Any] | None) -> None:
        """Find the facts, or the reason why no probe can run.

        Raises:
            ConfigError: the server has no tool of the given name.
            TooManyRequests: the server limits the number of requests.
        """
        facts = self.facts
        try:
            facts.discovery, without = await discover(self._peer)
            facts.handshake, session = await initialize(self._peer)
        except NotSent as error:
            facts.unreachable = str(error)
            return
        if session is not None:
            self.lanes.append(session)
        facts.is_sessionless, facts.has_sessions = without is not None, session is not None
        lane = session or without
        if lane is None:
            facts.unreachable = _reason(facts)
            return
        facts.versions = [one.version for one in (session, without) if one is not None]
        facts.server = _name(facts.handshake.result, facts.discovery.result)
        await self._lists(lane)
        await self._choose(lane, tool, arguments)

    async def _lists(self, lane: Lane) -> None:
        for question in lane.questions()[1:]:
            outcome = await lane.ask(question)
            if not question.fits(outcome.result):
                self.facts.unanswered[question.method] = str(outcome)

    async def _choose(self, lane: Lane, tool: str, arguments: Mapping[str, Any] | None) -> None:
        facts = self.facts
        if not tool:
            candidates = read_only(await _tools(lane, ""))[:_CANDIDATES]
            for candidate in candidates:
                if await self._try(lane, candidate):
                    return
            if len(candidates) > 1:
                # None of them returned a result without an error: the first one is as good as the others.
                await self._try(lane, candidates[0])
            return
        tools = await _tools(lane, tool)
        if not any(one.get("name") == tool for one in tools) and "tools/list" not in facts.unanswered:
            known = ", ".join(str(one.get("name")) for one in tools[:_NAMED]) or "no tool"
            more = f" and {len(tools) - _NAMED} more" if len(tools) > _NAMED else ""
            raise ConfigError(f"the server has no tool {tool!r}; it has {known}{more}")
        schema = next((one.get("inputSchema") for one in tools if one.get("name") == tool), None)
        await self._try(lane, call_of(tool, dict(arguments or {}), schema))

    async def _try(self, lane: Lane, question: Question) -> bool:
        """Call a tool once and take it; return whether it returned a result without an error."""
        facts = self.facts
        name = question.params["name"]
        outcome = await lane.ask(question)
        facts.tool, facts.tool_name = question, name
        facts.call_seconds = outcome.seconds if outcome.answers else None
        facts.call_steps = sum(one.is_progress for one in outcome.events)
        facts.call_note = "" if outcome.answers else f"a call of {name} got {outcome}"
        return question.fits(outcome.result) and outcome.result.get("isError") is not True


async def _tools(lane: Lane, wanted: str) -> list[dict[str, Any]]:
    """Return the tools of all pages, or of the pages up to the wanted tool."""
    tools: list[dict[str, Any]] = []
    params: dict[str, Any] = {}
    seen: set[str] = set()
    for _ in range(_PAGES if "tools" in lane.capabilities else 0):
        outcome = await lane.ask(Question("tools/list", params, "tools"))
        result = outcome.result if isinstance(outcome.result, dict) else {}
        found = result.get("tools")
        tools += [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str) or cursor in seen or any(one.get("name") == wanted for one in tools):
            break
        seen.add(cursor)
        params = {"cursor": cursor}
    return tools


def read_only(tools: Sequence[Mapping[str, Any]]) -> list[Question]:
    """Return calls of the tools that are annotated read-only, with values for their arguments.

    First those with the fewest.
    """
    found: list[tuple[int, Question]] = []
    for tool in tools:
        hints, schema, name = tool.get("annotations"), tool.get("inputSchema"), tool.get("name")
        is_read_only = isinstance(hints, dict) and hints.get("readOnlyHint") is True
        if is_read_only and isinstance(schema, dict) and isinstance(name, str):
            sample = _sample(schema)
            if sample is not None:
                found.append((len(sample), call_of(name, sample, schema)))
    return [question for _, question in sorted(found, key=lambda one: one[0])]


def call_of(name: str, arguments: dict[str, Any], schema: Any) -> Question:
    """Return a tool call, with the headers that repeat its arguments."""
    mirrored: tuple[tuple[str, str], ...] = ()
    if isinstance(schema, dict):
        # An annotation that breaks a rule is a fault of the tool, not of the server: such a tool is called without the
        # headers.
        with suppress(ConfigError):
            found = values_of(mirrored_parameters(schema, name), arguments)
            mirrored = tuple((header, encode_value(value)) for header, value in found)
    return Question("tools/call", {"name": name, "arguments": arguments}, "content", mirrored)


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


def _reason(facts: Facts) -> str:
    outcome = facts.handshake
    if outcome.status in UNAUTHORIZED:
        return f"the server refuses access ({outcome})"
    moved = "".join(f", to {place}: check that URL" for place in outcome.headers.get("location", ()))
    if outcome.status == NO_ANSWER:
        return f"initialize: {outcome}"
    said = outcome.error.get("message")
    return f"initialize got {outcome}{moved}" + (f": {said[:SHOWN]}" if isinstance(said, str) else "")


def _name(handshake: Any, discovery: Any) -> str:
    info = handshake.get("serverInfo") if isinstance(handshake, dict) else None
    if info is None and isinstance(discovery, dict) and isinstance(discovery.get("_meta"), dict):
        info = discovery["_meta"].get(SERVER_KEY)
    if not isinstance(info, dict):
        return "unnamed"
    return f"{info.get('name', 'unnamed')} {info.get('version', '')}".strip()[:200]
