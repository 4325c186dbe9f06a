"""The client under test in the official suite: plays the part that each scenario asks for, with `holdfast.Client`.

The suite runs it with the URL of its mock server as the last argument and the scenario in the environment.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import aiohttp

from holdfast.auth.oauth import (
    AuthorizationCode,
    ClientCredentials,
    ClientIdentity,
    Grant,
    IdentityAssertion,
    JwtBearer,
    MemoryStorage,
    OAuth,
)
from holdfast.client.client import Client
from holdfast.client.handlers import Elicitation
from holdfast.errors import HoldfastError
from holdfast.protocol.params import CreateMessageParams

SCENARIO: Final = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
VERSION: Final = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "auto")
CLIENT_DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""The suite expects this one; nobody fetches it."""
REDIRECT_URI: Final = "http://localhost:3000/callback"
CONTEXT: Final[dict[str, Any]] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


def on_sample(params: CreateMessageParams) -> str:
    return "a word"


def on_elicit(asked: Elicitation) -> dict[str, Any]:
    return {}


async def list_tools(client: Client) -> None:
    await client.list_tools()


async def call_first(client: Client) -> None:
    """Call every tool that is offered with the simplest arguments that fit its schema."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, simplest(tool.input_schema), raise_on_error=False)


async def add_numbers(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def call_all(client: Client) -> None:
    """Use everything that is offered once: headers must mirror names of tools, resources and prompts."""
    await call_first(client)
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name, {argument.name: "x" for argument in prompt.arguments or []})


async def replay_calls(client: Client) -> None:
    """Make the calls that the scenario lists."""
    await client.list_tools()
    for call in CONTEXT.get("toolCalls", ()):
        await client.call_tool(call["name"], call.get("arguments"), raise_on_error=False)


async def echo_schema(client: Client) -> None:
    """Send a schema back exactly as it came."""
    tools = {tool.name: tool for tool in await client.list_tools()}
    schema = tools["json_schema_2020_12_tool"].input_schema
    echo = next(tool for tool in tools.values() if tool.name != "json_schema_2020_12_tool")
    await client.call_tool(echo.name, {next(iter(echo.input_schema["properties"])): schema})


def simplest(schema: dict[str, Any]) -> dict[str, Any]:
    values = {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    properties = schema.get("properties") or {}
    return {
        name: values.get(properties.get(name, {}).get("type"), "x") for name in schema.get("required") or ()
    }


async def open_browser(url: str) -> str:
    """Play a user who agrees at once: follow the page to where it sends the browser."""
    async with aiohttp.ClientSession() as browser, browser.get(url, allow_redirects=False) as page:
        return page.headers["location"]


def authorizer() -> OAuth:
    """Return what the scenario lets the client know."""
    name = SCENARIO.removeprefix("auth/")
    identity = ClientIdentity(
        CONTEXT.get("client_id", ""),
        secret=CONTEXT.get("client_secret", ""),
        private_key=CONTEXT.get("private_key_pem", ""),
        algorithm=CONTEXT.get("signing_algorithm", "ES256"),
    )
    grants: dict[str, Callable[[], Grant]] = {
        "client-credentials-basic": ClientCredentials,
        "client-credentials-jwt": ClientCredentials,
        "wif-jwt-bearer": lambda: JwtBearer(CONTEXT["valid_jwt"]),
        "enterprise-managed-authorization": lambda: JwtBearer(
            IdentityAssertion(
                CONTEXT["idp_id_token"],
                token_endpoint=CONTEXT["idp_token_endpoint"],
                client_id=CONTEXT["idp_client_id"],
            )
        ),
    }
    make = grants.get(name)
    return OAuth(
        make() if make else AuthorizationCode(open_browser, redirect_uri=REDIRECT_URI),
        client=identity if identity.id else None,
        client_document=CLIENT_DOCUMENT,
        client_name="holdfast-conformance",
        storage=MemoryStorage(),
        dpop=name.startswith("dpop"),
        guess_endpoints=name.startswith("2025-03-26"),
    )


PARTS: Final = {
    "initialize": list_tools,
    "tools_call": add_numbers,
    "json-schema-ref-no-deref": list_tools,
    "http-standard-headers": call_all,
    "http-custom-headers": replay_calls,
    "json-schema-2020-12-preservation": echo_schema,
}
"""What a scenario wants done; all others want every tool called."""


async def main(url: str) -> int:
    client = Client(
        url,
        sampling=on_sample,
        elicitation=on_elicit,
        roots=["file:///work"],
        version=VERSION,
        timeout=20,
        info={"name": "holdfast-conformance"},
        auth=authorizer() if SCENARIO.startswith("auth/") else None,
    )
    try:
        async with client:
            await PARTS.get(SCENARIO, call_first)(client)
    except HoldfastError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
