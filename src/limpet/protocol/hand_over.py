"""The words of a hand-over: tickets, the tool that collects their results, and the schemas of both. Pure.

A call that takes longer than its client waits is answered with a *ticket*: an ordinary result, which every client can
show its model. The model calls the tool `collect` with the ticket, and receives the result of the call
(`engine/hand_over.py`).
"""

import re
from base64 import b32encode
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, ValidationError, convert

from limpet.ports import Random
from limpet.protocol.content import TextContent
from limpet.protocol.results import CallToolResult
from limpet.protocol.wrapping import MARK, MEMBER

TICKET_KEY: Final = "io.limpet/ticket"
"""In the `_meta` of a result: it is no result of the tool yet. A client of ours reads it and collects the result."""
TICKET_MARK: Final = TICKET_KEY.encode()
"""What an encoded result has, if it may have a ticket."""
COLLECT_PAUSE: Final = 0.5
"""Seconds between two requests for a result: a server that has too many of them answers at once."""
UNKNOWN_TICKET: Final = (
    "This ticket is not known, or the result is no longer kept. Check that it was copied exactly. If it was, whether the call "
    "was executed is unknown."
)
TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""The names that the specification allows for a tool."""
_TICKET_BYTES: Final = 20
"""32 characters of base 32 without a rest."""
_TICKET: Final = re.compile(r"[a-z2-7]{32}(~[A-Za-z0-9_-]{1,16})?")
_SPACE: Final = re.compile(r"[\s\"'`.,:]+")


def new_ticket(random: Random) -> str:
    """Return 160 random bits in lower-case letters and the digits 2 to 7: no two of them look alike."""
    return b32encode(bytes.fromhex(random.token(_TICKET_BYTES))).decode().lower()


def read_ticket(given: object) -> str | None:
    """Return the ticket that a model has written, perhaps in capitals or with quotes around it.

    None: it is not a ticket.
    """
    if type(given) is not str or len(given) > 4 * _TICKET_BYTES:
        return None
    ticket, separator, mark = _SPACE.sub("", given).partition("~")
    found = ticket.lower() + separator + mark
    return found if _TICKET.fullmatch(found) else None


# The tool


def collect_tool(name: str, seconds: float) -> dict[str, Any]:
    """Return the tool that collects results, as a list has it. It waits at most so long."""
    return {
        "name": name,
        "title": "Collect the result of a slow call",
        "description": (
            "Get the result of a tool call that was still running when it was answered. Such an answer contains a "
            f"ticket. Call this tool with the ticket: it waits up to {seconds:g} s and returns exactly the result of the "
            "call, or says that it is still running; then call it again. Do not repeat the first call: it would run twice."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "ticket": {"type": "string", "description": "The ticket, exactly as it was given."},
                "wait": {
                    "type": "number",
                    "minimum": 0,
                    "description": f"How many seconds to wait for the result, at most {seconds:g}, which is the default.",
                },
                "cancel": {
                    "type": "boolean",
                    "description": "True: stop the call instead. What it has done already is not undone.",
                },
            },
            "required": ["ticket"],
            "additionalProperties": False,
        },
        "annotations": {
            "readOnlyHint": False,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
    }


def ticket_result(tool: str, ticket: str, collect: str, progress: str, seconds: float) -> CallToolResult:
    """Return the answer to a call that still runs, of a tool if it is known; `seconds`: how long its result is kept."""
    so_far = f" So far: {progress}." if progress else ""
    call = f"The call of {tool}" if tool else "The call"
    text = (
        f"{call} is still running.{so_far} Its result is not lost: call the tool {collect} with "
        f'{{"ticket": "{ticket}"}} to get it. Do not repeat the first call: it would run twice. '
        f"The result is kept for {seconds / 60:g} minutes after the call ends."
    )
    return CallToolResult(
        content=[TextContent(text=text)],
        structured_content=_ticket_members(ticket, collect, progress),
        meta={TICKET_KEY: {"ticket": ticket, "collect": collect}},
    )


def _ticket_members(ticket: str, collect: str, progress: str) -> dict[str, Any]:
    members = {"status": "running", "ticket": ticket, "collect": collect}
    return {**members, "progress": progress} if progress else members


class Ticket(Struct, frozen=True):
    """A ticket as a client reads it from the `_meta` of a result."""

    ticket: str
    collect: str


def ticket_of(result: Any) -> Ticket | None:
    """Return the ticket of a decoded result; None: it is the result of the call itself."""
    meta = result.get("_meta") if isinstance(result, dict) else None
    found = meta.get(TICKET_KEY) if isinstance(meta, dict) else None
    try:
        return None if found is None else convert(found, Ticket)
    except ValidationError:
        return None


def told(text: str, *, is_error: bool = False) -> CallToolResult:
    """Return a text of the tool that collects."""
    return CallToolResult(content=[TextContent(text=text)], is_error=is_error)


# Output schemas

TICKET_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "title": "Still running",
    "description": "The call still runs: call the tool `collect` with the ticket to get its result.",
    "properties": {
        "status": {"const": "running"},
        "ticket": {"type": "string", "pattern": "^[a-z2-7]{32}"},
        "collect": {"type": "string"},
        "progress": {"type": "string"},
    },
    "required": ["status", "ticket", "collect"],
    "additionalProperties": False,
}
_HOISTED: Final = ("$schema", "$defs", "definitions")
"""Members that stay at the root: references point to them there."""
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Members whose values are data, not schemas."""


def with_ticket(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output schema that allows what the given one allows, or a ticket.

    Clients check the structured content of a result against the schema of its tool. References keep their meaning: the
    definitions stay at the root, and a reference to the root, or to a place in it, points to the first alternative.
    """
    if "$id" in schema:
        # Its references are relative to itself.
        own, root = dict(schema), dict[str, Any]()
    else:
        root = {name: _moved(schema[name]) for name in _HOISTED if name in schema}
        own = {name: value for name, value in _moved(schema).items() if name not in _HOISTED}
    if schema.get("type") == "object":
        root["type"] = "object"
    if MARK in schema:
        # The client of fastmcp looks at the root for the mark, and there for the schema of the value.
        root |= {MARK: schema[MARK], "properties": {MEMBER: own.get("properties", {}).get(MEMBER, {})}}
    return {**root, "anyOf": [own, TICKET_SCHEMA]}


def without_ticket(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the own schema of a tool, for a result that is not a ticket; references to its root are not restored."""
    match schema:
        case {"anyOf": [dict(own), {"title": "Still running", "properties": {"ticket": _}}]}:
            return {**schema, **own}
        case _:
            return schema


def _moved(value: Any) -> Any:
    if isinstance(value, list):
        return [_moved(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: item if name in _DATA else _referring(name, item) for name, item in value.items()}


def _referring(name: str, value: Any) -> Any:
    if name not in ("$ref", "$dynamicRef") or type(value) is not str:
        return _moved(value)
    is_moved = value == "#" or (value.startswith("#/") and value.split("/")[1] not in _HOISTED)
    return f"#/anyOf/0{value[1:]}" if is_moved else value
