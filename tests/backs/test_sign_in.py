"""How Limpet signs in to a server behind a URL: a token of its own from a file, a variable or a function."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from limpet import Client, McpError, Remote
from limpet.cli.config.sources import planned
from limpet.cli.options import Options
from limpet.cli.process_options import ProcessOptions
from tests.asgi import Peer
from tests.backs.fake import Fake
from tests.messages import request
from tests.support import async_test, until


@asynccontextmanager
async def served(fake: Fake, **options: Any) -> AsyncIterator[Remote]:
    async with fake:
        remote = Remote(fake.url, **options)
        try:
            yield remote
        finally:
            await remote.engine.aclose()


def sent(fake: Fake) -> set[str]:
    return {headers.get("authorization", "") for _, headers in fake.headers}


@pytest.mark.parametrize("place", ["file", "variable"])
@async_test
async def test_the_token_comes_from_a_file_or_from_a_variable(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv("LIMPET_UPSTREAM_TOKEN", "from-variable")
    file = str(tmp_path / "token") if place == "file" else None
    async with Fake() as fake:
        fake.tokens = {f"from-{place}"}
        [one] = planned(fake.url, (), Options(token_file=file), ProcessOptions()).endpoints
        async with Client(one.source.server(one.options)) as client:
            assert await client.list_tools() == []
        assert sent(fake) == {f"Bearer from-{place}"}


@async_test
async def test_a_function_returns_the_current_token_and_a_refused_one_is_replaced_once() -> None:
    token = "old"
    fake = Fake()
    fake.tokens = {"old"}
    async with (
        served(fake, token=lambda: token) as remote,
        Client(remote, protocol_version="sessions") as client,
    ):
        await client.call_tool("a")
        token, fake.tokens = "new", {"new"}
        await client.call_tool("a")
        assert [h["authorization"] for h in fake.sent_with("tools/call")] == ["Bearer old", "Bearer new"]


@async_test
async def test_a_token_that_changes_between_two_attempts_is_tried_once_more() -> None:
    tokens = iter(["right", "right", "right", "right", "wrong", "right"])
    current = ["right"]

    def present() -> str:
        current[0] = next(tokens, current[0])
        return current[0]

    fake = Fake(get=False)
    fake.tokens = {"right"}
    async with served(fake, token=present) as remote, Client(remote, protocol_version="sessions") as client:
        while len(fake.sent_with("tools/call")) < 3:
            await client.call_tool("a")
        assert "Bearer wrong" in sent(fake)


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@async_test
async def test_a_refused_sign_in_is_a_clear_error_and_is_not_repeated(era: Any) -> None:
    fake = Fake(era=era)
    fake.tokens = set()
    async with served(fake, token="wrong") as remote:
        peer = Peer(remote.asgi())
        refused = await peer.initialize()
        assert refused.status == 200
        assert "HTTP 401" in refused.json["error"]["message"]
        assert "wrong" not in refused.body.decode()
        assert len(fake.headers) == 1
        again = await peer.sessionless("tools/list", {}).done()
        assert "HTTP 401" in again.json["error"]["message"]
        assert len(fake.headers) == 2


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@async_test
async def test_a_token_that_expires_in_a_session_costs_one_request_for_each_call(era: Any) -> None:
    fake = Fake(era=era, capabilities={"tools": {"listChanged": True}})
    fake.tokens = {"ours"}
    async with served(fake, token="ours") as remote:
        peer = Peer(remote.asgi())
        await peer.initialize()
        await peer.post(request(1, "tools/call", {"name": "a"})).done()
        await until(lambda: bool(fake.streams))
        fake.tokens = set()
        before = fake.asked["tools/call"]
        for number in (2, 3):
            failed = await peer.post(request(number, "tools/call", {"name": "a"})).done()
            assert "HTTP 401" in failed.json["error"]["message"]
        assert fake.asked["tools/call"] == before + 2
        fake.break_streams()
        count = len(fake.headers)
        # The stream is tried again at most twice, with and without the place where it broke.
        await asyncio.sleep(0.5)  # real time is the subject: no storm of requests follows
        assert len(fake.headers) - count <= 2
        fake.tokens = {"ours"}
        answer = await peer.post(request(4, "tools/call", {"name": "a"})).done()
        assert "result" in answer.json


@async_test
async def test_calls_at_once_with_a_refused_token_end_with_one_request_each() -> None:
    fake = Fake()
    fake.tokens = {"ours"}
    async with served(fake, token="ours") as remote, Client(remote, protocol_version="sessions") as client:
        await client.call_tool("a")
        fake.tokens = set()
        calls = await asyncio.gather(*(client.call_tool("a") for _ in range(20)), return_exceptions=True)
        assert all(isinstance(call, McpError) and "401" in call.message for call in calls)
        assert fake.asked["tools/call"] == 21
