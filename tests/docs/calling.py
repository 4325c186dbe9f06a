"""Calls every tool, prompt and resource of a server with values that its schemas allow, as a principal with all scopes."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from limpet import Client, McpError, Principal, Server
from limpet.client.handlers import Elicitation
from limpet.types import ElicitFormParams, Tool

WORDS: Final = {
    "item": "soap",
    "thing": "spoon",
    "dish": "soup",
    "name": "soup",
    "path": "menu.txt",
    "city": "Bergen",
}
"""By argument: a text that the examples know."""


def sample(schema: Mapping[str, Any], name: str = "") -> Any:
    """Return a value that fits a schema: the default, the first choice, or the smallest value of its type."""
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("enum", "anyOf", "oneOf"):
        if key in schema:
            return schema[key][0] if key == "enum" else sample(schema[key][0], name)
    match schema.get("type"):
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        case "boolean":
            return True
        case "array":
            return [sample(schema.get("items", {}), name)] * schema.get("minItems", 0)
        case "object":
            members = schema.get("properties", {})
            return {key: sample(members[key], key) for key in schema.get("required", ())}
        case _:
            return WORDS.get(name, "x")


def _elicit(asked: Elicitation) -> dict[str, Any]:
    """Accept a page, or a form with the first values that it allows."""
    form: dict[str, Any] = sample(asked.requested_schema) if isinstance(asked, ElicitFormParams) else {}
    return form


async def failures(server: Server) -> dict[str, str]:
    """Call each tool and prompt, and read each resource; return the errors of tools by name.

    A tool may be for one era: it fails if it fails in both.
    """
    async with AsyncExitStack() as stack:
        eras = [era for era in ("sessionless", "sessions") if server.settings.eras in ("both", era)]
        clients = [await stack.enter_async_context(_client(server, era)) for era in eras]
        first, able = clients[0], clients[0].agreed.capabilities
        for prompt in await first.list_prompts() if "prompts" in able else ():
            wanted = [one.name for one in prompt.arguments or () if one.required]
            await first.get_prompt(prompt.name, {name: WORDS.get(name, "x") for name in wanted})
        for resource in await first.list_resources() if "resources" in able else ():
            await first.read_resource(resource.uri)
        errors = dict[str, str]()
        for tool in await first.list_tools() if "tools" in able else ():
            for client in clients:
                errors[tool.name] = await _error(client, tool)
                if not errors[tool.name]:
                    break
    return {name: error for name, error in errors.items() if error}


def _client(server: Server, era: str) -> Client:
    principal = Principal(subject="ada", scopes=server.scopes.access.known())
    return Client(
        server,
        principal=principal,
        elicitation=_elicit,
        sampling=lambda _: "soup",
        roots=["file:///"],
        protocol_version=era,
    )


async def _error(client: Client, tool: Tool) -> str:
    """Call a tool; return its error, or nothing."""
    try:
        result = await client.call_tool(tool.name, sample(tool.input_schema), raise_on_error=False)
    except McpError as error:
        return str(error)
    return result.text if result.is_error else ""
