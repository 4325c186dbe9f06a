"""OAuth to a server behind a URL: for the user of this machine, and for each principal with an account of its own."""

import asyncio
import base64
import gc
import json
import re
import stat
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from weakref import ref

import pytest
from aiohttp import web

from limpet import Client, ConfigError, McpError, Remote, Server
from limpet.auth import Principal
from limpet.auth.authorizer import Challenge
from limpet.auth.forward_key import new_key
from limpet.auth.oauth import UserOAuth, users
from limpet.auth.oauth.users import MOST_USERS
from limpet.cli.behind import ServerSource
from limpet.cli.options import Options
from limpet.config import HttpSettings
from limpet.errors import INVALID_REQUEST, URL_ELICITATION_REQUIRED
from limpet.ports import SystemRandom
from tests.asgi import Call, Peer
from tests.loopback import on_loopback
from tests.messages import request
from tests.redis_server import needs_redis, redis_server
from tests.support import async_test, until
from tests.unit.auth.oauth.authority import Authority

CALLBACK: Final = "https://gateway.example/oauth/callback"
CALL: Final = request(1, "tools/call", {"name": "who", "arguments": {}})


class Behind(Authority):
    """A server with OAuth whose only tool returns the token that it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.instead["/mcp"] = self._serve
        self.accepted = "secret-access-"

    async def _serve(self, asked: web.BaseRequest) -> web.Response:
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if not token.startswith(self.accepted):
            where = f'resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            return web.Response(status=401, headers={"www-authenticate": f"Bearer {where}"})
        if asked.method != "POST":
            return web.Response(status=405)
        message = json.loads(await asked.read())
        if "id" not in message:
            return web.Response(status=202)
        answers: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "behind", "version": "1"},
            },
            "tools/call": {"content": [{"type": "text", "text": token}]},
        }
        result = answers.get(message["method"])
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **answer})


@asynccontextmanager
async def behind() -> AsyncIterator[Behind]:
    made = Behind()
    async with on_loopback(made) as made.base:
        yield made


async def verified(token: str) -> Principal | None:
    return None if token == "stranger" else Principal(subject=token)


@asynccontextmanager
async def served(at: Behind, **options: Any) -> AsyncIterator[Any]:
    oauth = UserOAuth(CALLBACK, **options)
    remote = Remote(at.url, oauth=oauth, verifier=verified, protocol_version="sessions")
    try:
        yield remote.asgi()
    finally:
        await remote.engine.aclose()


def page_of(answer: Call) -> str:
    """Return the URL that the client must open; the error has all that a client needs."""
    error = answer.json["error"]
    [page] = error["data"]["elicitations"]
    assert page["mode"] == "url"
    assert page["url"] in error["message"]
    assert page["elicitationId"]
    return str(page["url"])


async def open_page(at: Behind, page: str) -> str:
    """Play the browser: agree, and return the query of the redirect."""
    redirect = await at.browse(page)
    assert redirect.startswith(f"{CALLBACK}?")
    return urlsplit(redirect).query


async def come_back(app: Any, token: str, query: str) -> Call:
    """Play the browser: follow the redirect to the callback, signed in to the gateway with a token."""
    return (
        await Peer(app, token=token).send("GET", path="/oauth/callback", query_string=query.encode()).done()
    )


async def signed_in(at: Behind, app: Any, token: str) -> Peer:
    peer = Peer(app, token=token)
    query = await open_page(at, page_of(await peer.initialize()))
    assert (await come_back(app, token, query)).status == 200

    async def works() -> bool:
        return "result" in (await peer.initialize()).json

    await until(works)
    return peer


async def account(peer: Peer) -> str:
    """Return the token of the upstream account that a client uses."""
    return str((await peer.post(CALL).done()).json["result"]["content"][0]["text"])


@async_test
async def test_each_principal_signs_in_with_its_own_browser_and_uses_its_own_account() -> None:
    async with behind() as at, served(at) as app:
        ann = await signed_in(at, app, "ann")
        bob = await signed_in(at, app, "bob")
        accounts = [await account(peer) for peer in (ann, bob, ann)]
        assert accounts[0] == accounts[2] != accounts[1]
        # Both use one registration of the application.
        assert at.seen["/register"] == 1
        other = Peer(app, token="ann")
        assert "result" in (await other.initialize()).json
        assert await account(other) == accounts[0]


@async_test
async def test_a_redirect_is_accepted_only_from_the_principal_that_started_the_sign_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with behind() as at, served(at) as app:
        attacker = Peer(app, token="mallory")
        query = await open_page(at, page_of(await attacker.initialize()))
        # The attacker let another person open the page. That browser is signed in to the gateway as another user, or not at all.
        for victim, status in (("ann", 403), ("stranger", 401), ("", 401)):
            assert (await come_back(app, victim, query)).status == status
        assert caplog.text.count("audit.refused reason=token") == 2
        assert (await come_back(app, "mallory", "code=the-code&state=guessed")).status == 403
        await signed_in(at, app, "ann")
        assert (await come_back(app, "ann", query)).status == 403
        assert page_of(await attacker.initialize())
        assert at.seen["/token"] == 1


@async_test
async def test_a_user_who_must_sign_in_is_no_failure_of_the_server_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The dashboard showed the server as failing, with the page of the user in the reason."""
    async with behind() as at, served(at) as app:
        page = page_of(await Peer(app, token="ann").initialize())
        await signed_in(at, app, "bob")
    assert "upstream.unusable" not in caplog.text
    assert page not in caplog.text


@asynccontextmanager
async def two_behind_one(*callbacks: str) -> AsyncIterator[tuple[list[Behind], Any]]:
    """Serve two servers with OAuth at one address."""
    async with behind() as first, behind() as second:
        server = Server("all", verifier=verified)
        for name, at, callback in zip("ab", (first, second), callbacks, strict=True):
            remote = Remote(at.url, oauth=UserOAuth(callback), protocol_version="sessions")
            server.include(remote, name)
        try:
            yield [first, second], server.asgi()
        finally:
            await server.engine.aclose()


@pytest.mark.parametrize("other", [CALLBACK, f"{CALLBACK}/other"], ids=["one callback", "two callbacks"])
@async_test
async def test_a_user_signs_in_to_each_of_several_servers_at_one_address(other: str) -> None:
    async with two_behind_one(CALLBACK, other) as (every, app):
        peer = Peer(app, token="ann")
        opened = (await peer.initialize()).json["result"]
        discovered = (await Peer(app, token="ann").sessionless("server/discover", {}).done()).json["result"]
        for name, at, callback in reversed(list(zip("ab", every, (CALLBACK, other), strict=True))):
            call = request(1, "tools/call", {"name": f"{name}_who", "arguments": {}})
            page = page_of(await peer.post(call).done())
            assert page.startswith(at.base)
            # The lists have no component of this server yet: only so the user learns of the page.
            assert f"## {name} (names: {name}_…)\n\nIts tools" in opened["instructions"]
            assert page in opened["instructions"]
            assert page in discovered["instructions"]
            redirect = urlsplit(await at.browse(page))
            assert f"{redirect.scheme}://{redirect.netloc}{redirect.path}" == callback
            browser = Peer(app, token="ann")
            sent = browser.send("GET", path=redirect.path, query_string=redirect.query.encode())
            assert (await sent.done()).status == 200
            answer = (await peer.post(call).done()).json
            assert answer["result"]["content"][0]["text"].startswith("secret-access-")


@async_test
async def test_while_a_sign_in_waits_every_request_gets_the_same_page() -> None:
    async with behind() as at, served(at) as app:
        peer = Peer(app, token="ann")
        pages = {page_of(answer) for answer in [await peer.initialize() for _ in range(3)]}
        assert len(pages) == 1
        assert at.seen["/register"] == 1
        answer = await peer.sessionless("tools/list", {}).done()
        assert answer.json["error"]["code"] == INVALID_REQUEST
        assert pages == {answer.json["error"]["data"]["elicitations"][0]["url"]}
        discovered = await peer.sessionless("server/discover", {}).done()
        assert discovered.json["error"]["code"] == INVALID_REQUEST
        assert (await peer.initialize()).json["error"]["code"] == URL_ELICITATION_REQUIRED


@async_test
async def test_a_user_who_refuses_can_start_again() -> None:
    async with behind() as at, served(at) as app:
        peer = Peer(app, token="ann")
        page = page_of(await peer.initialize())
        state = parse_qs(urlsplit(page).query)["state"][0]
        refusal = f"error=access_denied&state={state}&iss={at.base}"
        assert (await come_back(app, "ann", refusal)).status == 200

        async def has_another_page() -> bool:
            return page_of(await peer.initialize()) != page

        await until(has_another_page)
        await signed_in(at, app, "ann")


@async_test
async def test_a_session_whose_token_cannot_be_renewed_needs_a_new_sign_in() -> None:
    async with behind() as at, served(at) as app:
        peer = await signed_in(at, app, "ann")
        before = await account(peer)
        at.accepted, at.refresh = "secret-access-9", "another"
        page = page_of(await peer.post(CALL).done())
        at.accepted = "secret-access-"
        query = await open_page(at, page)
        assert (await come_back(app, "ann", query)).status == 200

        async def works() -> bool:
            answer = await peer.post(CALL).done()
            return "result" in answer.json and before not in answer.body.decode()

        await until(works)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store that several replicas share."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'accounts.db'}"
        return
    with redis_server() as server:
        yield server.url


@asynccontextmanager
async def replicas(at: Behind, store: str, *keys: str) -> AsyncIterator[list[Remote]]:
    """Serve with one replica for each key."""
    made = [
        Remote(
            at.url,
            oauth=UserOAuth(CALLBACK),
            verifier=verified,
            protocol_version="sessions",
            store=store,
            forward_key=key,
        )
        for key in keys
    ]
    try:
        yield made
    finally:
        for remote in made:
            await remote.engine.aclose()


@async_test
async def test_a_sign_in_that_one_replica_began_ends_at_another_one_and_all_use_its_account(
    store: str, tmp_path: Path
) -> None:
    key = new_key(SystemRandom())
    async with behind() as at:
        async with replicas(at, store, key, key) as (first, second):
            apps = [first.asgi(), second.asgi()]
            pages = {page_of(await Peer(app, token="ann").initialize()) for app in (*apps, *apps)}
            assert len(pages) == 1
            # The first replica is gone, and the browser comes to the second one.
            await first.engine.aclose()
            query = await open_page(at, pages.pop())
            assert (await come_back(apps[1], "bob", query)).status == 403
            assert (await come_back(apps[1], "ann", query)).status == 200
            assert (await come_back(apps[1], "ann", query)).status == 403
            peer = Peer(apps[1], token="ann")
            assert "result" in (await peer.initialize()).json
            used = await account(peer)
            # The second user needs no second registration of Limpet.
            await signed_in(at, apps[1], "bob")
            assert (at.seen["/register"], at.seen["/token"]) == (1, 2)
        async with replicas(at, store, key) as (later,):
            peer = Peer(later.asgi(), token="ann")
            assert "result" in (await peer.initialize()).json
            assert await account(peer) == used
        async with replicas(at, store, new_key(SystemRandom())) as (foreign,):
            # Without the key the tokens are unreadable.
            assert page_of(await Peer(foreign.asgi(), token="ann").initialize())
        for file in tmp_path.iterdir():
            assert used.encode() not in file.read_bytes()


@async_test
async def test_a_token_that_is_refused_at_two_replicas_at_once_is_renewed_by_one(store: str) -> None:
    key = new_key(SystemRandom())
    async with behind() as at, replicas(at, store, key, key) as remotes:
        apps = [remote.asgi() for remote in remotes]
        peers = [await signed_in(at, apps[0], "ann"), Peer(apps[1], token="ann")]
        assert "result" in (await peers[1].initialize()).json
        before = {await account(peer) for peer in peers}
        assert before == {"secret-access-1"}
        at.accepted = "secret-access-2"
        assert await asyncio.gather(*map(account, peers)) == ["secret-access-2"] * 2
        assert [form["grant_type"] for form in at.forms].count("refresh_token") == 1


@async_test
async def test_the_user_of_this_machine_signs_in_once_in_the_browser(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pages: list[str] = []
    monkeypatch.setattr("webbrowser.open", pages.append)
    async with behind() as at:
        remote = Remote(at.url, oauth=True, protocol_version="sessions")
        async with aclosing(remote.engine):
            peer = Peer(remote.asgi())
            waiting = asyncio.ensure_future(peer.initialize())
            await until(lambda: bool(pages))
            redirect = urlsplit(await at.browse(pages[0]))
            reader, writer = await asyncio.open_connection(redirect.hostname, redirect.port)
            writer.write(f"GET {redirect.path}?{redirect.query} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            assert b"200 OK" in await reader.read()
            writer.close()
            assert "result" in (await waiting).json
            assert (await account(peer)).startswith("secret-access-")
            assert len(pages) == 1
            assert pages[0] in capsys.readouterr().err
            [file] = (tmp_path / "limpet" / "credentials").iterdir()
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


@async_test
async def test_a_sign_in_goes_on_when_the_request_that_started_it_gives_up() -> None:
    started: list[Challenge] = []
    agreed = asyncio.Event()

    class Slow:
        async def headers(self, method: str, url: str) -> dict[str, str]:
            return {"authorization": f"{method} {url}"}

        async def challenged(self, challenge: Challenge) -> bool:
            started.append(challenge)
            await agreed.wait()
            return True

    sign_in = users.LastingSignIn(Slow())
    refused = Challenge(method="POST", url="u", status=401, headers={}, sent={}, attempt=1)
    impatient = asyncio.ensure_future(sign_in.challenged(refused))
    await until(lambda: len(started) == 1)
    impatient.cancel()
    await asyncio.wait({impatient})
    patient = asyncio.ensure_future(sign_in.challenged(refused))
    agreed.set()
    assert await patient
    assert len(started) == 1
    assert await sign_in.headers("GET", "u") == {"authorization": "GET u"}
    agreed.clear()
    left = asyncio.ensure_future(sign_in.challenged(refused))
    await until(lambda: len(started) == 2)
    await sign_in.aclose()
    with pytest.raises(asyncio.CancelledError):
        await left


@pytest.mark.parametrize(
    "callback",
    [
        "http://gateway.example/callback",
        "https://gateway.example",
        "https://gateway.example/",
        "ftp://x/y",
        "/x",
    ],
)
def test_an_unsafe_callback_is_refused(callback: str) -> None:
    with pytest.raises(ConfigError, match="https URL with a path"):
        UserOAuth(callback)


def test_sign_ins_that_do_not_fit_are_refused_at_the_start(tmp_path: Path) -> None:
    url = "https://example.test/mcp"
    with pytest.raises(ConfigError, match="one of token, oauth and pass_token"):
        Remote(url, oauth=True, token="ours")
    for settings in (HttpSettings(allow_anonymous=True), HttpSettings(allowed_hosts=("mcp.example",))):
        with pytest.raises(ConfigError, match="other users may call here"):
            Remote(url, oauth=True).front(settings)
    with pytest.raises(ConfigError, match="other users may call here"):
        Remote(url, oauth=True, verifier=verified).front(HttpSettings())
    with pytest.raises(ConfigError, match="a verifier must distinguish users"):
        Remote(url, oauth=UserOAuth(CALLBACK)).front(HttpSettings())
    store = f"sqlite:///{tmp_path / 'x.db'}"
    with pytest.raises(ConfigError, match="give all processes a key"):
        Remote(url, oauth=UserOAuth(CALLBACK), verifier=verified, store=store).front(HttpSettings())
    for options, said in (
        (Options(oauth=True, oauth_callback=CALLBACK), "use one of them"),
        (Options(oauth_client_id="x"), "--oauth-client-id needs --oauth or --oauth-callback"),
        (Options(oauth=True, oauth_issuer="https://id.example"), "needs --oauth-client-id"),
        (Options(oauth=True, oauth_secret_file="x"), "--oauth-secret-file needs --oauth-client-id"),
        (Options(oauth=True, oauth_client_id="x", oauth_secret_file="x"), "x cannot be read"),
        (Options(oauth_callback=CALLBACK, oauth_redirect="http://localhost:1/x"), "needs --oauth"),
        (Options(oauth=True, oauth_redirect="https://tools.example/x"), "must lead to this machine"),
    ):
        with pytest.raises(ConfigError, match=said):
            ServerSource(url=url).server(options)
    made = ServerSource(url=url).server(Options(oauth_callback=CALLBACK))
    made.verifier = verified
    assert "/oauth/callback" in made.front(HttpSettings()).paths
    assert ServerSource(url=url).server(Options(oauth=True)).front(HttpSettings()).paths == ("/mcp",)


def test_the_secret_of_a_client_registered_by_hand_goes_to_one_authorization_server_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("from-file\n")
    monkeypatch.setenv("LIMPET_OAUTH_SECRET", "from-variable")
    for file in (str(tmp_path / "secret"), None):
        known = Options(oauth=True, oauth_client_id="us", oauth_secret_file=file)
        with pytest.raises(ConfigError, match="a client secret needs --oauth-issuer"):
            ServerSource(url="https://example.test/mcp").server(known)


@pytest.mark.parametrize("place", ["file", "variable", ""])
@async_test
async def test_a_client_registered_by_hand_signs_in_without_registration(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "secret").write_text("from-file\n")
    if place == "variable":
        monkeypatch.setenv("LIMPET_OAUTH_SECRET", "from-variable")
    pages: list[str] = []
    monkeypatch.setattr("webbrowser.open", pages.append)
    async with behind() as at:
        at.metadata = {"registration_endpoint": None, "token_endpoint_auth_methods_supported": None}
        options = Options(
            oauth=True,
            oauth_client_id="by-hand",
            oauth_secret_file=str(tmp_path / "secret") if place == "file" else None,
            oauth_issuer=at.base if place else None,
            oauth_redirect="http://localhost/back",
            upstream_version="sessions",
        )
        remote = ServerSource(url=at.url).server(options)
        async with aclosing(remote.engine):
            waiting = asyncio.ensure_future(Peer(remote.front(HttpSettings())).initialize())
            await until(lambda: bool(pages))
            redirect = await at.browse(pages[0])
            assert re.match(r"http://localhost:\d+/back\?", redirect)
            with await asyncio.to_thread(urllib.request.urlopen, redirect) as page:
                assert page.status == 200
            assert "result" in (await waiting).json
            pair = base64.b64encode(f"by-hand:from-{place}".encode()).decode()
            [headers], [form] = at.token_headers, at.forms
            if place:
                assert headers["authorization"] == f"Basic {pair}"
            else:
                assert form["client_id"] == "by-hand"


@async_test
async def test_an_anonymous_client_cannot_sign_in() -> None:
    with pytest.raises(McpError, match="this client is anonymous"):
        async with Client(Remote("https://example.test/mcp", oauth=UserOAuth(CALLBACK))) as client:
            await client.list_tools()


def test_a_further_user_takes_the_place_of_the_one_that_was_not_seen_for_the_longest_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MOST_USERS > 1
    monkeypatch.setattr(users, "MOST_USERS", 2)
    oauth = UserOAuth(CALLBACK)
    used = oauth.of("a")
    first, second = ref(oauth.of("b")), ref(oauth.of("c"))
    assert oauth.of("c") is second()
    oauth.of("d")
    gc.collect()
    assert first() is None, "it was used before the others"
    assert second() is not None
    # A connection still uses this one. With another one for the same principal, both would renew its tokens.
    assert oauth.of("a") is used
