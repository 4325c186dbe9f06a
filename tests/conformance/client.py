"""The client under test in the official suite: plays the part that each scenario asks for, with `limpet.Client`.

The suite gives it the URL of its mock server, and the scenario in the environment.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import aiohttp

from limpet.auth.oauth import (
    AuthorizationCode,
    Bounds,
    ClientCredentials,
    ClientIdentity,
    Grant,
    IdentityAssertion,
    JwtBearer,
    MemoryStorage,
    OAuth,
)
from limpet.auth.oauth.discovery import find_resource
from limpet.auth.oauth.web import open_web
from limpet.auth.urls import origin
from limpet.client.client import Client
from limpet.client.handlers import Elicitation
from limpet.errors import LimpetError
from limpet.protocol.params import CreateMessageParams

CLIENT_DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""The suite expects this URL; it is never fetched."""
REDIRECT_URI: Final = "http://localhost:3000/callback"


def context() -> dict[str, Any]:
    """Return the scenario's configuration for its client."""
    told: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return told


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
    for call in context().get("toolCalls", ()):
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
    """Act as a user that agrees at once: follow the redirect of the page."""
    async with aiohttp.ClientSession() as browser, browser.get(url, allow_redirects=False) as page:
        return page.headers["location"]


async def issuer_of(url: str) -> str:
    """Act as the operator that registered the client: a scenario gives a secret without its issuer."""
    async with open_web(url, Bounds()) as web:
        found = await find_resource(web, url, "")
        named = found.authorization_servers if found else None
        return named[0] if named else origin(url)


async def authorizer(name: str, url: str) -> OAuth:
    """Return the scenario's data for the client."""
    told = context()
    is_secret = "client_secret" in told or "valid_jwt" in told
    issuer = await issuer_of(url) if is_secret else ""
    identity = ClientIdentity(
        told.get("client_id", ""),
        secret=told.get("client_secret", ""),
        private_key=told.get("private_key_pem", ""),
        algorithm=told.get("signing_algorithm", "ES256"),
        issuer=issuer,
    )
    grants: dict[str, Callable[[], Grant]] = {
        "client-credentials-basic": ClientCredentials,
        "client-credentials-jwt": ClientCredentials,
        "wif-jwt-bearer": lambda: JwtBearer(told["valid_jwt"], issuer=issuer),
        "enterprise-managed-authorization": lambda: JwtBearer(
            IdentityAssertion(
                told["idp_id_token"],
                token_endpoint=told["idp_token_endpoint"],
                client_id=told["idp_client_id"],
            )
        ),
    }
    make = grants.get("enterprise-managed-authorization" if name.startswith("cross-app-access") else name)
    return OAuth(
        make() if make else AuthorizationCode(open_browser, redirect_uri=REDIRECT_URI),
        client=identity if identity.id else None,
        client_document=CLIENT_DOCUMENT,
        client_name="limpet-conformance",
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
"""The action of a scenario; all others call every tool."""


async def main(url: str) -> int:
    """Play the part that the environment names; return the exit status."""
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    client = Client(
        url,
        sampling=on_sample,
        elicitation=on_elicit,
        roots=["file:///work"],
        protocol_version=os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
        timeout=20,
        info={"name": "limpet-conformance"},
        auth=await authorizer(scenario.removeprefix("auth/"), url) if scenario.startswith("auth/") else None,
    )
    try:
        async with client:
            await PARTS.get(scenario, call_first)(client)
    except LimpetError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0
