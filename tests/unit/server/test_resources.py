"""Resources and templates as a client meets them."""

import base64
from urllib.parse import unquote

import pytest

from limpet import Context, McpError, Server, ToolError
from limpet.config import Limits, Settings
from limpet.errors import ConfigError
from tests.support import async_test
from tests.unit.server.peer import connect, connected, serving, settle

UPDATED = "notifications/resources/updated"


def weather() -> Server:
    server = Server("weather")

    @server.resource("weather://now", mime_type="text/plain", size=4)
    async def now() -> str:
        """How it is."""
        return "rain"

    @server.resource("weather://map")
    def chart() -> bytes:
        return b"\x00\x01"

    @server.resource("weather://{city}/{day}")
    async def forecast(city: str, day: int, ctx: Context) -> dict[str, object]:
        return {"city": city, "day": day, "asked": ctx.request_id}

    return server


@async_test
async def test_resources_and_templates_are_listed_apart_and_read_alike() -> None:
    async with connected(weather()) as peer:
        listed = (await peer.request("resources/list"))["resources"]
        assert listed[0] == {
            "name": "now", "uri": "weather://now", "mimeType": "text/plain", "size": 4, "description": "How it is.",
        }  # fmt: skip
        (template,) = (await peer.request("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"] == "weather://{city}/{day}"
        (contents,) = (await peer.request("resources/read", {"uri": "weather://now"}))["contents"]
        assert contents == {"uri": "weather://now", "mimeType": "text/plain", "text": "rain"}
        (contents,) = (await peer.request("resources/read", {"uri": "weather://map"}))["contents"]
        assert base64.b64decode(contents["blob"]) == b"\x00\x01"
        (contents,) = (await peer.request("resources/read", {"uri": "weather://k%C3%B6ln/3"}))["contents"]
        assert contents["text"] == '{"city":"köln","day":3,"asked":5}'


@async_test
async def test_an_unknown_uri_is_not_found_and_a_bad_variable_is_explained() -> None:
    async with connected(weather()) as peer:
        for uri, code in (
            ("weather://a/b/c", -32002),
            ("other://now", -32002),
            ("weather://a/monday", -32602),
        ):
            with pytest.raises(McpError) as raised:
                await peer.request("resources/read", {"uri": uri})
            assert raised.value.code == code
        with pytest.raises(McpError) as raised:
            await peer.request("resources/read", {})
        assert raised.value.code == -32602


@async_test
async def test_an_absolute_path_reaches_only_a_function_that_takes_them() -> None:
    server, child = Server("s"), Server("child")
    seen: list[str] = []

    @server.resource("below:{+path}")
    async def below(path: str) -> str:
        seen.append(path)
        return path

    @child.resource("any:{+path}", absolute=True)
    async def anywhere(path: str) -> str:
        return path

    server.include(child)
    async with connected(server) as peer:
        for path in ("/etc/passwd", "%2Fetc/passwd", "C:/Windows", "//host/share", "%5C%5Chost%5Cshare"):
            with pytest.raises(McpError, match="Resource not found"):
                await peer.request("resources/read", {"uri": f"below:{path}"})
            (read,) = (await peer.request("resources/read", {"uri": f"any:{path}"}))["contents"]
            assert read["text"] == unquote(path)
        assert seen == []


@async_test
async def test_a_client_visible_error_of_a_resource_reaches_the_client() -> None:
    server = Server("s")

    @server.resource("a://b")
    async def broken() -> str:
        raise ToolError("the disk is full")

    async with connected(server) as peer:
        with pytest.raises(McpError, match="the disk is full") as raised:
            await peer.request("resources/read", {"uri": "a://b"})
        assert raised.value.code == -32603


@async_test
async def test_only_subscribers_receive_an_update() -> None:
    server = weather()

    @server.tool
    async def change(ctx: Context) -> str:
        await ctx.resource_updated("weather://now")
        return "changed"

    async with serving(server):
        one, two = await connect(server), await connect(server)
        await one.request("resources/subscribe", {"uri": "weather://now"})
        await two.request("resources/subscribe", {"uri": "weather://x/1"})
        await two.call("change")
        assert await one.wait_for(UPDATED) == [{"uri": "weather://now"}]
        await one.request("resources/unsubscribe", {"uri": "weather://now"})
        await server.resource_updated("weather://now")
        await settle()
        assert len(one.notified(UPDATED)) == 1
        assert two.notified(UPDATED) == []


@async_test
async def test_subscriptions_need_a_resource_and_are_bounded() -> None:
    server = weather()
    server.settings = Settings(limits=Limits(subscriptions=1))
    async with connected(server) as peer:
        with pytest.raises(McpError) as raised:
            await peer.request("resources/subscribe", {"uri": "none://x"})
        assert raised.value.code == -32002
        await peer.request("resources/subscribe", {"uri": "weather://now"})
        with pytest.raises(McpError, match="Too many subscriptions: a session may have 1"):
            await peer.request("resources/subscribe", {"uri": "weather://map"})


def test_a_template_and_its_function_must_name_the_same_variables() -> None:
    server = Server("s")

    def takes(city: str, day: str = "") -> str:
        return city + day

    server.add_resource("a://{city}", takes)
    server.add_resource("b://{city}/{day}", takes)
    for uri in ("c://x", "c://{day}", "c://{city}/{country}"):
        with pytest.raises(TypeError, match="must name the same variables"):
            server.add_resource(uri, takes)
    with pytest.raises(ConfigError, match="no scheme"):
        server.add_resource("nowhere", lambda: "")
