"""The headers of a client that reach the server behind a URL: none, or the token and the headers that the operator named."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from limpet import Client, ConfigError, McpError, Remote
from limpet.auth import Principal
from limpet.config import HttpSettings
from limpet.testing import NotingObserver
from tests.asgi import Peer
from tests.backs.fake import Fake
from tests.messages import request
from tests.support import async_test, until

URL = "https://example.test/mcp"


@asynccontextmanager
async def served(fake: Fake, **options: Any) -> AsyncIterator[Any]:
    async with fake:
        remote = Remote(fake.url, **options)
        try:
            yield remote.asgi()
        finally:
            await remote.engine.aclose()


class User:
    """A verifier for which tokens such as `ann-1` and `ann-2` belong to one user."""

    async def __call__(self, token: str) -> Principal | None:
        return Principal(subject=token.partition("-")[0])


def tokens(fake: Fake, *methods: str) -> list[str]:
    """Return the tokens of the requests, in order; of all methods if none is named."""
    wanted = [headers for name, headers in fake.headers if not methods or name in methods]
    return [headers.get("authorization", "").removeprefix("Bearer ") for headers in wanted]


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@async_test
async def test_each_clients_token_goes_with_all_its_requests_and_with_no_others(era: Any) -> None:
    notes = NotingObserver()
    fake = Fake(era=era)
    async with served(fake, pass_token=True, observer=notes) as app:
        for token in ("one", "two", "one"):
            peer = Peer(app, token=token)
            await peer.sessionless("tools/call", {"name": "a", "arguments": {}}).done()
            await peer.initialize()
            await peer.post(request(1, "tools/call", {"name": "a", "arguments": {}})).done()
            await peer.delete()
            assert tokens(fake, "tools/call")[-2:] == [token, token]
        await until(lambda: era == "sessionless" or fake.asked["DELETE"] == 3)
        sessions = {headers.get("mcp-session-id") for _, headers in fake.headers} - {None}
        for session in sessions:
            sent = {h["authorization"] for _, h in fake.headers if h.get("mcp-session-id") == session}
            assert len(sent) == 1, "one session, one token"
        opened = tokens(fake, "server/discover" if era == "sessionless" else "initialize")
        # Three sessions; and for each token one connection without a session, which is found again.
        assert sorted(opened) == ["one", "one", "one", "two", "two"]
    assert "Bearer" not in str(notes.notes)


@async_test
async def test_a_renewed_token_of_the_same_user_replaces_the_old_one_in_a_session() -> None:
    fake = Fake(capabilities={"tools": {"listChanged": True}})
    async with served(fake, pass_token=True, verifier=User()) as app:
        fake.tokens = {"ann-1"}
        peer = Peer(app, token="ann-1")
        await peer.initialize()
        await peer.post(request(1, "tools/list", {})).done()
        await until(lambda: len(fake.streams) == 1)
        peer.token, fake.tokens = "ann-2", {"ann-2"}
        # A list that was read with another token is not used.
        listed = await peer.post(request(2, "tools/list", {})).done()
        assert listed.json["result"] == {"tools": []}
        fake.break_streams()
        await until(lambda: fake.asked["GET"] == 2)
        assert tokens(fake, "GET", "tools/list") == ["ann-1", "ann-1", "ann-2", "ann-2"]
        # Another user cannot use the session, so its token reaches no connection of the first one.
        peer.token = "bob-1"
        assert (await peer.post(request(3, "tools/list", {})).done()).status == 404
        assert "bob-1" not in tokens(fake)


@async_test
async def test_tokens_of_one_user_share_no_connection_without_a_session() -> None:
    fake = Fake(era="sessionless")
    fake.ttl = 60_000
    async with served(fake, pass_token=True, verifier=User()) as app:
        for token in ("ann-1", "ann-2", "ann-1"):
            await Peer(app, token=token).sessionless("tools/list", {}).done()
        assert tokens(fake, "server/discover") == ["ann-1", "ann-2"]
        assert tokens(fake, "tools/list") == ["ann-1", "ann-2"]


@async_test
async def test_without_a_verifier_a_token_is_needed_and_its_session_is_its_own() -> None:
    fake = Fake()
    async with served(fake, pass_token=True) as app:
        assert (await Peer(app).initialize()).status == 401
        peer = Peer(app, token="one")
        await peer.initialize()
        peer.token = "two"
        assert (await peer.post(request(1, "tools/list", {})).done()).status == 404
        assert set(tokens(fake)) == {"one"}


@async_test
async def test_a_token_that_the_server_behind_refuses_is_an_error_and_opens_no_session() -> None:
    fake = Fake()
    fake.tokens = {"right"}
    async with served(fake, pass_token=True) as app:
        refused = await Peer(app, token="wrong").initialize()
        assert "HTTP 401" in refused.json["error"]["message"]
        assert "mcp-session-id" not in refused.headers
        assert "result" in (await Peer(app, token="right").initialize()).json


@async_test
async def test_a_client_without_headers_cannot_pass_its_token() -> None:
    async with Fake() as fake:
        with pytest.raises(McpError, match="needs the client's own token"):
            async with Client(Remote(fake.url, pass_token=True)) as client:
                await client.list_tools()


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@async_test
async def test_only_the_named_headers_pass_with_the_values_of_each_request(era: Any) -> None:
    fake = Fake(era=era)
    async with served(fake, pass_headers=["X-Tenant", "cookie"], token="ours") as app:
        sent = {"x-tenant": "red", "cookie": "a=b", "x-secret": "no"}
        peer = Peer(app, token="the-clients-own")
        await peer.initialize(headers=sent)
        call = request(1, "tools/call", {"name": "a", "arguments": {}})
        await peer.post(call, headers=sent).done()
        await peer.post(call, headers={"x-tenant": "blue"}).done()
        await peer.post(call).done()
        await peer.delete()
        await until(lambda: era == "sessionless" or fake.asked["DELETE"] == 1)
    calls = fake.sent_with("tools/call")
    assert [headers.get("x-tenant") for headers in calls] == ["red", "blue", None]
    assert [headers.get("cookie") for headers in calls] == ["a=b", None, None]
    for _, headers in fake.headers:
        assert headers["authorization"] == "Bearer ours"
        assert "x-secret" not in headers
    assert fake.sent_with("server/discover" if era == "sessionless" else "initialize")[0]["x-tenant"] == "red"


@async_test
async def test_clients_with_other_values_share_no_connection_without_a_session() -> None:
    fake = Fake()
    async with served(fake, pass_headers=["x-tenant"]) as app:
        peer = Peer(app)
        for tenant in ("red", "blue", "red", None):
            headers = {"x-tenant": tenant} if tenant is not None else {}
            await peer.sessionless("tools/list", {}, headers=headers).done()
        opened = fake.sent_with("initialize")
        assert [headers.get("x-tenant") for headers in opened] == ["red", "blue", None]


@async_test
async def test_a_value_that_cannot_be_sent_is_refused() -> None:
    fake = Fake()
    async with served(fake, pass_headers=["x-tenant"]) as app:
        refused = await Peer(app).initialize(headers={"x-tenant": "süd"})
        assert "characters that cannot be passed on" in refused.json["error"]["message"]
        assert not fake.headers


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Authorization", "--pass-token"),
        ("Connection", "one connection only"),
        ("TE", "one connection only"),
        ("Proxy-Authorization", "one connection only"),
        ("Host", "Limpet sets it"),
        ("Content-Length", "Limpet sets it"),
        ("Last-Event-ID", "Limpet sets it"),
        ("Mcp-Session-Id", "headers of MCP"),
        ("mcp-param-region", "headers of MCP"),
        ("not a name", "not the name"),
        ("", "not the name"),
    ],
)
def test_a_header_that_may_not_pass_is_refused_at_the_start(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Remote(URL, pass_headers=[name])


def test_a_header_has_one_source() -> None:
    with pytest.raises(ConfigError, match="has a configured value"):
        Remote(URL, headers={"X-Team": "red"}, pass_headers=["x-team"])
    with pytest.raises(ConfigError, match="has a configured value"):
        Remote(URL, headers={"Authorization": "Basic x"}, pass_token=True)
    with pytest.raises(ConfigError, match="one of token, oauth and pass_token"):
        Remote(URL, token="ours", pass_token=True)
    remote: Any = Remote(URL, pass_token=True)
    assert remote._target.needs_credentials
    assert not Remote(URL)._target.needs_credentials
    remote.front(HttpSettings(allow_anonymous=True))
