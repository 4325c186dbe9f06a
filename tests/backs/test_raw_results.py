"""Results pass as the server wrote them: UTF-8 is checked, line breaks do not break events, and size is no obstacle."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from limpet import Process, Remote
from limpet.config import Settings
from tests.asgi import Call, Peer
from tests.backs.fake import Fake
from tests.backs.raw import LARGE, RESULTS
from tests.messages import request
from tests.support import async_test

PROGRAM: Final = [sys.executable, str(Path(__file__).parent / "raw.py")]
UPSTREAMS: Final = ("json", "sse", "stdio")
FRONTS: Final = ("json", "sse")
assert Settings().limits.stream_bytes < LARGE


@asynccontextmanager
async def served(kind: str, form: str) -> AsyncIterator[Peer]:
    async with AsyncExitStack() as stack:
        if kind == "stdio":
            proxy: Any = Process(PROGRAM)
        else:
            fake = Fake(form="sse" if kind == "sse" else "json")
            fake.answers["tools/call"] = lambda params: RESULTS[params["name"]]
            await stack.enter_async_context(fake)
            proxy = Remote(fake.url)
        peer = Peer(proxy.asgi(response=form))
        try:
            await peer.initialize()
            yield peer
        finally:
            await proxy.engine.aclose()


async def ask(peer: Peer, name: str) -> Any:
    """Return the response to a call; it must be one message."""
    return _message(await peer.post(request(1, "tools/call", {"name": name, "arguments": {}})).done())


def _message(answer: Call) -> Any:
    if not answer.is_stream:
        return answer.json
    [message] = [message for message in answer.messages if message.get("id") == 1]
    return message


@pytest.mark.parametrize("form", FRONTS)
@pytest.mark.parametrize("kind", UPSTREAMS)
@async_test
async def test_results_pass_whole_and_only_as_utf_8(kind: str, form: str) -> None:
    async with served(kind, form) as peer:
        assert (await ask(peer, "plain"))["result"]["text"] == "café"
        assert (await ask(peer, "breaks"))["result"] == {"content": [], "text": "line\nbreak"}
        assert len((await ask(peer, "large"))["result"]["text"]) == LARGE
        for name in ("invalid", "cut", "surrogate", "half", "nan"):
            refused = await ask(peer, name)
            assert refused["error"]["code"] in {-32603, -31002}, name
            assert "result" not in refused
        # The connection still works.
        assert (await ask(peer, "plain"))["result"]["text"] == "café"


@async_test
async def test_a_result_that_is_not_an_object_is_an_error_for_a_client_of_the_other_era() -> None:
    async with served("json", "json") as peer:
        call = peer.sessionless("tools/call", {"name": "list", "arguments": {}})
        refused = _message(await call.done())
        assert refused["error"]["code"] == -32603
        assert "is not an object" in refused["error"]["message"]


@pytest.mark.parametrize("kind", UPSTREAMS)
@async_test
async def test_results_are_passed_on_unchanged(kind: str) -> None:
    async with served(kind, "json") as peer:
        call = request(1, "tools/call", {"name": "numbers", "arguments": {}})
        answer = await peer.post(call).done()
        assert RESULTS["numbers"] in answer.body
