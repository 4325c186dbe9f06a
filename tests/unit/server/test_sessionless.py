"""Clients of 2026-07-28: discovery, caching hints, and errors."""

from typing import Annotated, Any

import pytest
from pydantic import Field

from limpet import Cache, ConfigError, Context, McpError, Principal, Server, Settings
from limpet.errors import NoSession
from limpet.middleware import MiddlewareRequest
from limpet.protocol.types import ListToolsResult
from limpet.server.authoring.middleware import CallNext
from tests.messages import PREFIX
from tests.schema import Json
from tests.support import async_test
from tests.unit.server.peer import connect, connected
from tests.unit.server.sessionless_client import ALL, SessionlessClient, sessionless

LEGACY = ["2025-11-25", "2025-06-18", "2025-03-26"]


def small(**options: object) -> Server:
    server = Server("small", version="2", **options)  # type: ignore[arg-type]

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.resource("data://one")
    async def one() -> str:
        return "1"

    @server.resource("data://many/{number}")
    async def many(number: str) -> str:
        return number

    @server.prompt
    async def hello() -> str:
        return "hello"

    return server


async def verifier(token: str) -> Principal | None:
    return Principal(subject=token) if token in ("ada", "bob") else None


LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


# Discovery


@async_test
async def test_discovery_names_versions_capabilities_instructions_and_the_server() -> None:
    async with sessionless(small(instructions="Be brief.")) as client:
        result = (await client.send("server/discover")).result
    assert result["supportedVersions"] == ["2026-07-28", *LEGACY]
    assert result["capabilities"].keys() >= {"tools", "resources", "prompts", "logging"}
    assert result["instructions"] == "Be brief."
    assert result["_meta"] == {f"{PREFIX}serverInfo": {"name": "small", "version": "2"}}
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "public")


@async_test
async def test_every_result_names_its_type_and_its_server() -> None:
    async with sessionless(small()) as client:
        for method, params in {
            **{method: {} for method in LISTS},
            "tools/call": {"name": "echo", "arguments": {"text": "x"}},
            "prompts/get": {"name": "hello"},
            "resources/read": {"uri": "data://one"},
            "completion/complete": {
                "ref": {"type": "ref/prompt", "name": "hello"},
                "argument": {"name": "a", "value": ""},
            },
        }.items():
            result = (await client.send(method, params)).result
            assert result["resultType"] == "complete"
            assert result["_meta"][f"{PREFIX}serverInfo"]["name"] == "small"


@async_test
async def test_the_meta_of_a_result_is_kept() -> None:
    server = small()

    async def marked(request: MiddlewareRequest, call_next: CallNext) -> ListToolsResult:
        return ListToolsResult(tools=[], meta={"mine": 1})

    server.middleware(marked)
    async with sessionless(server) as client:
        result = (await client.send("tools/list")).result
    assert result["_meta"] == {"mine": 1, f"{PREFIX}serverInfo": {"name": "small", "version": "2"}}
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private"), "an author's own result has a hint too"


@async_test
async def test_results_in_sessions_carry_no_caching_hints() -> None:
    async with connected(small(cache=Cache(ttl=60))) as peer:
        for method in LISTS:
            assert not (await peer.request(method)).keys() & {"ttlMs", "cacheScope", "resultType", "_meta"}


@async_test
async def test_lists_come_in_the_order_of_registration_every_time() -> None:
    server = Server("many")
    names = [f"tool{number * 7919 % 100:02}" for number in range(100)]
    for name in names:
        server.add_tool(lambda: None, name=name)
    async with sessionless(server) as client:
        for _ in range(3):
            listed = (await client.send("tools/list")).result["tools"]
            assert [tool["name"] for tool in listed] == names


# Caching hints


async def hints(client: SessionlessClient) -> dict[str, tuple[int, str]]:
    found = {}
    for method in ("server/discover", *LISTS):
        result = (await client.send(method)).result
        found[method] = (result["ttlMs"], result["cacheScope"])
    for uri in ("data://one", "data://many/7"):
        result = (await client.send("resources/read", {"uri": uri})).result
        found[uri] = (result["ttlMs"], result["cacheScope"])
    return found


@async_test
async def test_by_default_nothing_is_cacheable_and_contents_are_private() -> None:
    async with sessionless(small()) as client:
        found = await hints(client)
    assert found == {
        **dict.fromkeys(("server/discover", *LISTS), (0, "public")),
        **dict.fromkeys(("data://one", "data://many/7"), (0, "private")),
    }


@async_test
async def test_hints_are_set_for_a_server_a_list_and_a_resource() -> None:
    async with sessionless(small(cache=Cache(ttl=1.5))) as client:
        assert {ttl for ttl, _ in (await hints(client)).values()} == {1500}
    server = small(cache={"tools/list": Cache(ttl=60, scope="private"), "resources/read": Cache(ttl=2)})

    @server.resource("data://fixed", cache=Cache(ttl=3600, scope="public"))
    async def fixed() -> str:
        return "fixed"

    async with sessionless(server) as client:
        found = await hints(client)
        assert found["tools/list"] == (60_000, "private")
        assert found["prompts/list"] == (0, "public")
        assert found["data://one"] == (2_000, "private")
        result = (await client.send("resources/read", {"uri": "data://fixed"})).result
        assert (result["ttlMs"], result["cacheScope"]) == (3_600_000, "public")


@async_test
async def test_a_list_that_differs_between_callers_is_private() -> None:
    server = small(verifier=verifier)
    async with sessionless(server, token="ada") as client:
        assert {scope for _, scope in (await hints(client)).values()} == {"private"}, "behind a guard all is"
    server = small()
    server.disable_tool("echo", principal="ada")
    async with sessionless(server) as client:
        found = await hints(client)
        assert found["tools/list"] == (0, "private")
        assert found["prompts/list"] == (0, "public")


@pytest.mark.parametrize("wrong", [{"ttl": -1}, {"ttl": float("inf")}, {"scope": "shared"}])
def test_an_invalid_caching_hint_is_refused(wrong: Json) -> None:
    with pytest.raises(ConfigError):
        Cache(**wrong)


def test_a_caching_hint_for_an_uncacheable_method_is_refused() -> None:
    with pytest.raises(ConfigError, match="tools/call"):
        Server("x", cache={"tools/call": Cache(ttl=1)})


# Errors


@async_test
async def test_an_unknown_resource_is_a_wrong_parameter_here_and_has_its_own_code_in_a_session() -> None:
    server = small()
    async with sessionless(server) as client:
        error = (await client.send("resources/read", {"uri": "data://none"})).error
        assert (error["code"], error["data"]) == (-32602, {"uri": "data://none"})
        peer = await connect(server)
        with pytest.raises(McpError) as refused:
            await peer.request("resources/read", {"uri": "data://none"})
        assert refused.value.code == -32002


@async_test
async def test_methods_of_sessions_are_not_found() -> None:
    async with sessionless(small()) as client:
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such"):
            answered = await client.send(method, {"uri": "data://one"})
            assert (answered.status, answered.error["code"]) == (404, -32601)


@async_test
async def test_an_invalid_log_level_is_refused() -> None:
    async with sessionless(small(), meta={f"{PREFIX}logLevel": "loud"}) as client:
        answered = await client.send("tools/list")
        assert (answered.status, answered.error["code"]) == (400, -32602)


# Eras


@pytest.mark.parametrize(
    ("eras", "by_client", "versions"),
    [
        ("both", {}, ["2026-07-28", *LEGACY]),
        ("sessionless", {}, ["2026-07-28"]),
        ("sessions", {"guest": "sessionless"}, ["2026-07-28"]),
        ("sessionless", {"guest": "both"}, ["2026-07-28", *LEGACY]),
        ("both", {"other": "sessions"}, ["2026-07-28", *LEGACY]),
    ],
)
@async_test
async def test_discovery_names_the_versions_this_client_may_use(
    eras: Json, by_client: Json, versions: Json
) -> None:
    async with sessionless(small(eras=eras, eras_by_client=by_client)) as client:
        assert (await client.send("server/discover")).result["supportedVersions"] == versions


@pytest.mark.parametrize(("eras", "by_client"), [("sessions", {}), ("both", {"guest": "sessions"})])
@async_test
async def test_a_client_that_is_served_with_sessions_only_gets_the_error_that_makes_it_send_initialize(
    eras: Json, by_client: Json
) -> None:
    async with sessionless(small(eras=eras, eras_by_client=by_client)) as client:
        for method in ("server/discover", "tools/list", "no/such"):
            answered = await client.send(method)
            assert (answered.status, answered.error["code"]) == (400, -32022)
            assert answered.error["data"] == {"supported": LEGACY, "requested": "2026-07-28"}


@pytest.mark.parametrize(("eras", "by_client"), [("sessionless", {}), ("both", {"peer": "sessionless"})])
@async_test
async def test_a_client_that_may_have_no_session_is_refused_with_the_supported_versions(
    eras: Json, by_client: Json
) -> None:
    server = small(eras=eras, eras_by_client=by_client)
    async with sessionless(server):
        with pytest.raises(McpError, match="supported: 2026-07-28") as refused:
            await connect(server)
        assert refused.value.code == -32022
        assert refused.value.data == {"supported": ["2026-07-28"], "requested": "2025-11-25"}


@async_test
async def test_an_unknown_version_is_answered_with_those_that_are_served() -> None:
    async with sessionless(
        small(eras="sessionless"), meta={f"{PREFIX}protocolVersion": "1900-01-01"}
    ) as client:
        answered = await client.send("tools/list", headers={"mcp-protocol-version": "1900-01-01"})
        assert (answered.status, answered.error["code"]) == (400, -32022)
        assert answered.error["data"] == {"supported": ["2026-07-28"], "requested": "1900-01-01"}


def test_an_invalid_era_is_refused() -> None:
    for wrong in ({"eras": "old"}, {"eras_by_client": {"x": "old"}}):
        with pytest.raises(ConfigError, match="both, sessions, sessionless"):
            Server("x", **wrong)
    assert Server("x", settings=Settings(eras="sessionless")).settings.eras == "sessionless"


# Mirrored parameters


@async_test
async def test_a_parameter_that_a_header_repeats_is_declared_by_its_annotation_and_held_against_it() -> None:
    server = Server("routed")

    @server.tool
    async def where(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        return region

    async with sessionless(server) as client:
        (tool,) = (await client.send("tools/list")).result["tools"]
        assert tool["inputSchema"]["properties"]["region"]["x-mcp-header"] == "Region"
        params = {"name": "where", "arguments": {"region": "eu"}}
        ok = await client.send("tools/call", params, headers={"mcp-param-region": "eu"})
        assert ok.result["content"][0]["text"] == "eu"
        for headers in ({}, {"mcp-param-region": "us"}):
            answered = await client.send("tools/call", params, headers=headers)
            assert (answered.status, answered.error["code"]) == (400, -32020)


@pytest.mark.parametrize(
    ("annotation", "complaint"),
    [
        (Annotated[str, Field(json_schema_extra={"x-mcp-header": "no header"})], "not a header name"),
        (Annotated[float, Field(json_schema_extra={"x-mcp-header": "Size"})], "string, integer or boolean"),
    ],
)
def test_a_header_that_cannot_be_one_is_refused_at_registration(annotation: Json, complaint: str) -> None:
    async def tool(value: str) -> str:
        return value

    tool.__annotations__["value"] = annotation
    with pytest.raises(ConfigError, match=complaint):
        Server("x").add_tool(tool)


# Features that need a session


@async_test
async def test_a_feature_that_needs_a_session_raises_one_error_that_names_the_alternative() -> None:
    server = Server("x")
    wants = {
        "state": lambda ctx: ctx.state.get("x"),
        "session.state": lambda ctx: ctx.session.state.get("x"),
        "session.notify": lambda ctx: ctx.session.notify("notifications/x"),
        "session.log": lambda ctx: ctx.session.log("error", "x"),
    }

    @server.tool
    async def use(what: str, ctx: Context) -> None:
        await wants[what](ctx)

    @server.tool
    async def hide(ctx: Context) -> None:
        server.disable_tool("use", session=ctx.session)

    async with sessionless(server) as client:
        for what in wants:
            assert "ctx.new_handle()" in await client.failure("use", what=what)
        assert "needs a session" in await client.failure("hide")
        assert len((await client.send("tools/list")).result["tools"]) == 2, "no other client lost a tool"


@async_test
async def test_the_error_is_one_that_a_handler_can_catch() -> None:
    server = Server("x")

    @server.tool
    async def either(ctx: Context) -> str:
        try:
            return str(await ctx.state.incr("n"))
        except NoSession:
            return "without"

    async with sessionless(server) as client:
        assert await client.text("either") == "without"


@async_test
async def test_client_info_and_capabilities_are_read_from_each_request() -> None:
    server = Server("x")

    @server.tool
    async def who(ctx: Context) -> list[str | dict[str, Any] | bool]:
        session = ctx.session
        await session.elicitation_complete("nothing happens")
        return [
            session.client_info.name,
            session.protocol_version,
            session.capabilities.to_wire(),
            session == ctx.session,
            ctx.meta["trace"],
        ]

    async with sessionless(server, meta={"trace": "t1"}) as client:
        assert (await client.call("who"))["structuredContent"]["result"] == [
            "guest",
            "2026-07-28",
            ALL,
            True,
            "t1",
        ]
        del client.meta[f"{PREFIX}clientInfo"]
        assert (await client.call("who"))["structuredContent"]["result"][0] == ""
