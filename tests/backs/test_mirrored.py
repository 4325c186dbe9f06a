"""The headers that repeat parameters of a 2026-07-28 server's tools: added for old clients, checked for new ones."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from limpet import Remote
from limpet.config import HttpSettings
from limpet.errors import HEADER_MISMATCH
from tests.asgi import Peer
from tests.backs.fake import Fake
from tests.messages import request
from tests.support import async_test, until

REGION = "mcp-param-region"
OTHER = "mcp-param-area"


def tool(header: str = "Region", name: str = "search") -> dict[str, Any]:
    properties = {"region": {"type": "string", "x-mcp-header": header}, "query": {"type": "string"}}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


class Searching(Fake):
    """A 2026-07-28 server with one tool, which requires the header of its parameter."""

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(era="sessionless", capabilities={"tools": capabilities})
        self.tool = tool()
        self.answers["tools/list"] = lambda _params: {"tools": [self.tool]}
        self.answers["tools/call"] = self._call

    def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        schema = self.tool["inputSchema"]["properties"]["region"]
        header = f"mcp-param-{schema['x-mcp-header'].lower()}"
        if self.headers[-1][1].get(header) != params["arguments"]["region"]:
            raise LookupError(HEADER_MISMATCH, "the header is missing or different")
        return {"content": []}


@asynccontextmanager
async def served(fake: Fake, settings: HttpSettings | None = None) -> AsyncIterator[Peer]:
    async with fake:
        remote = Remote(fake.url)
        app = remote.asgi() if settings is None else remote.front(settings)
        try:
            yield Peer(app)
        finally:
            await remote.engine.aclose()


def call(region: str = "north") -> dict[str, Any]:
    return {"name": "search", "arguments": {"region": region, "query": "q"}}


@pytest.mark.parametrize("lists_first", [True, False])
@async_test
async def test_a_2025_client_calls_a_tool_with_mirrored_parameters(lists_first: bool) -> None:
    fake = Searching()
    async with served(fake) as peer:
        await peer.initialize()
        if lists_first:
            await peer.post(request(1, "tools/list", {})).done()
        for number in (2, 3):
            answer = await peer.post(request(number, "tools/call", call())).done()
            assert answer.json["result"] == {"content": []}
        assert [sent[REGION] for sent in fake.sent_with("tools/call")] == ["north", "north"]
        assert fake.asked["tools/list"] == 1


@pytest.mark.parametrize("changes", [True, False], ids=["reported", "not reported"])
@async_test
async def test_a_changed_schema_is_read_again(changes: bool) -> None:
    fake = Searching(listChanged=True)
    async with served(fake) as peer:
        await peer.initialize()
        await peer.post(request(1, "tools/call", call())).done()
        fake.tool = tool("Area")
        if changes:
            await until(lambda: len(fake.streams) == 1)
            standalone = await peer.get().begun()
            fake.notify("notifications/tools/list_changed")
            await standalone.until(1)
            await standalone.cut()
        answer = await peer.post(request(2, "tools/call", call())).done()
        assert answer.json["result"] == {"content": []}
        assert fake.sent_with("tools/call")[-1][OTHER] == "north"
        assert fake.asked["tools/call"] == (2 if changes else 3)


@async_test
async def test_the_headers_of_a_2026_client_are_checked_before_the_server_is_called() -> None:
    fake = Searching()
    # The first refusal waits for the list of tools, and a response that has become a stream cannot have status 400.
    async with served(fake, HttpSettings(response="json")) as peer:
        for headers in ({}, {REGION: "south"}):
            refused = await peer.sessionless("tools/call", call(), headers=headers).done()
            assert refused.status == 400
            assert refused.json["error"]["code"] == HEADER_MISMATCH
        assert not fake.asked["tools/call"]
        answer = await peer.sessionless(
            "tools/call", call("süd"), headers={REGION: "=?base64?c8O8ZA==?="}
        ).done()
        assert answer.json["error"]["code"] == HEADER_MISMATCH  # this server compares without decoding
        assert fake.sent_with("tools/call")[-1][REGION] == "=?base64?c8O8ZA==?="


@async_test
async def test_a_2026_client_that_knows_a_newer_schema_than_we_is_not_refused() -> None:
    fake = Searching()
    async with served(fake) as peer:
        await peer.sessionless("tools/list", {}).done()
        fake.tool = tool("Area")
        answer = await peer.sessionless("tools/call", call(), headers={OTHER: "north"}).done()
        assert answer.json["result"]["content"] == []
        assert fake.asked["tools/call"] == 1


@async_test
async def test_a_call_of_an_anonymous_client_of_another_machine_passes_its_headers_and_reads_no_list() -> (
    None
):
    fake = Searching()
    async with served(fake, HttpSettings(allow_anonymous=True)) as peer:
        answer = await peer.sessionless("tools/call", call(), headers={REGION: "north"}).done()
        assert answer.json["result"]["content"] == []
        assert not fake.asked["tools/list"]


@async_test
async def test_a_tool_with_an_invalid_annotation_or_a_failing_list_does_not_stop_calls() -> None:
    fake = Fake(era="sessionless")
    async with served(fake) as peer:
        await peer.initialize()
        del fake.answers["tools/list"]
        answer = await peer.post(request(1, "tools/call", call())).done()
        assert "north" in answer.json["result"]["content"][0]["text"]
        fake.answers["tools/list"] = lambda _params: {"tools": [tool("not a name"), tool(name="other")]}
        await peer.post(request(2, "tools/list", {})).done()
        answer = await peer.post(request(3, "tools/call", call())).done()
        assert "north" in answer.json["result"]["content"][0]["text"]
        assert REGION not in fake.sent_with("tools/call")[-1]
        other = {**call(), "name": "other"}
        await peer.post(request(4, "tools/call", other)).done()
        assert fake.sent_with("tools/call")[-1][REGION] == "north"


@async_test
async def test_all_pages_of_the_tools_are_read() -> None:
    pages: dict[Any, dict[str, Any]] = {
        None: {"tools": [tool(name="one")], "nextCursor": "p2"},
        "p2": {"tools": [tool()]},
    }
    fake = Fake(era="sessionless")
    fake.answers["tools/list"] = lambda params: pages[params.get("cursor")]
    async with served(fake) as peer:
        await peer.initialize()
        await peer.post(request(1, "tools/call", call())).done()
        assert fake.sent_with("tools/call")[-1][REGION] == "north"
