"""A retry that lands at another replica than the one its call is parked at, over one file."""

from pathlib import Path
from typing import Any, get_args

import pytest

from holdfast import Context, Server
from holdfast.config import ResponseMode
from holdfast.stores.sqlite import SqliteStore
from tests.sqlite.support import store_path
from tests.support import async_test
from tests.unit.fronts.http.peer import Call, Peer, request
from tests.unit.fronts.http.test_listen import META, VERSION

ASKABLE = {**META, "io.modelcontextprotocol/clientCapabilities": {"roots": {}}, "progressToken": 1}


def replica(path: Path) -> Server:
    server = Server("carried", store=SqliteStore(path))

    @server.tool
    async def count(ctx: Context, *, talks: bool) -> int:
        roots = await ctx.roots()
        if talks:
            await ctx.progress(1, 2)
        return len(roots)

    return server


def called(peer: Peer, *, talks: bool, **more: Any) -> Call:
    params = {"name": "count", "arguments": {"talks": talks}, "_meta": ASKABLE, **more}
    headers = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "count"}
    return peer.post(request(1, "tools/call", params), headers=headers)


@pytest.mark.parametrize("mode", get_args(ResponseMode))
def test_a_retry_is_answered_from_elsewhere_in_the_mode_that_was_set_here(mode: ResponseMode) -> None:
    @async_test
    async def run() -> None:
        with store_path() as path:
            there, here = replica(path), replica(path)
            for talks in (False, True):
                asked = await called(Peer(there.asgi(response="json")), talks=talks).done()
                parked = asked.json["result"]
                answers = {key: {"roots": [{"uri": "file:///x"}]} for key in parked["inputRequests"]}
                retry = {"requestState": parked["requestState"], "inputResponses": answers}
                call = await called(Peer(here.asgi(response=mode)), talks=talks, **retry).done()
                assert call.is_stream is (mode == "sse" or (talks and mode == "adaptive"))
                [*told, answer] = call.messages if call.is_stream else [call.json]
                assert answer["result"]["structuredContent"] == {"result": 1}
                assert len(told) == (talks and mode != "json")
            await here.engine.aclose()
            await there.engine.aclose()

    run()
