"""Metadata of a protected endpoint (RFC 9728) and the challenges that name it, up to our own client that signs in."""

from contextlib import aclosing
from typing import Any

import pytest

from limpet import Client, Server
from limpet.auth import Principal
from limpet.auth.oauth import AuthorizationCode, MemoryStorage, OAuth
from limpet.auth.verifiers import AnyOf, JwtVerifier, StaticTokens
from limpet.config import HttpSettings
from limpet.errors import ConfigError
from limpet.fronts.http.http1.start_and_stop import Service
from limpet.server.servers import Servers
from tests.asgi import Peer
from tests.http.serving import listening
from tests.support import async_test
from tests.unit.auth.oauth.authority import Authority, authority
from tests.unit.fronts.http.bench import bench, front_test

WELL_KNOWN = "/.well-known/oauth-protected-resource"
HERE = {"host": "localhost:8000"}


class Known:
    """A verifier that names its authorization server, and accepts its tokens."""

    def __init__(self, at: Authority | None = None, server: str = "https://id.example") -> None:
        self.authorization_servers = (at.base if at else server,)
        self._at = at

    async def __call__(self, token: str) -> Principal | None:
        """Return whose it is."""
        if self._at is None or token not in self._at.valid:
            return None
        return Principal(subject="ada", scopes=frozenset(self._at.valid[token]))


def signing_in(at: Authority) -> OAuth:
    """Return a client's sign-in by a browser that accepts at once."""
    browser = AuthorizationCode(at.browse, redirect_uri="http://127.0.0.1:3000/callback")
    return OAuth(browser, storage=MemoryStorage())


def public(url: str) -> dict[str, Any]:
    return {"public_url": url, "allowed_hosts": ["tools.example", "localhost"]}


@pytest.mark.parametrize(
    ("http", "path", "resource"),
    [
        ({}, f"{WELL_KNOWN}/mcp", "http://localhost:8000/mcp"),
        ({}, WELL_KNOWN, "http://localhost:8000/mcp"),
        ({"path": "/"}, WELL_KNOWN, "http://localhost:8000"),
        (public("https://tools.example/mcp"), f"{WELL_KNOWN}/mcp", "https://tools.example/mcp"),
        # A proxy that removes the first part of the path.
        (public("https://tools.example/a/mcp"), f"{WELL_KNOWN}/a/mcp", "https://tools.example/a/mcp"),
        (public("https://Tools.example/a/mcp"), f"{WELL_KNOWN}/mcp", "https://tools.example/a/mcp"),
    ],
)
@front_test
async def test_the_metadata_names_the_resource_and_its_servers_without_a_token(
    http: dict[str, Any], path: str, resource: str
) -> None:
    async with bench(verifier=Known(), **http) as b:
        found = await b.peer().send("GET", path=path, headers=HERE).done()
        assert found.status == 200
        assert found.json == {
            "resource": resource,
            "authorization_servers": ["https://id.example"],
            "bearer_methods_supported": ["header"],
        }
        assert found.headers["access-control-allow-origin"] == "*"
        # An answer that depends on the Host of the request is not cached.
        assert ("cache-control" in found.headers) is bool(http.get("public_url"))
        # The page of a browser gets the same.
        page = await b.peer().send("GET", path=path, headers={**HERE, "origin": "http://localhost"}).done()
        assert page.json == found.json


@pytest.mark.parametrize(
    ("http", "host", "challenge"),
    [
        ({}, "localhost:8000", f'Bearer resource_metadata="http://localhost:8000{WELL_KNOWN}/mcp"'),
        (
            public("https://tools.example/mcp"),
            "tools.example",
            f'Bearer resource_metadata="https://tools.example{WELL_KNOWN}/mcp"',
        ),
        # A name that was not configured is never repeated: a token for it would be worth nothing here.
        ({"allowed_hosts": ["*"]}, "evil.example", "Bearer"),
    ],
)
@front_test
async def test_a_refusal_leads_to_the_metadata(http: dict[str, Any], host: str, challenge: str) -> None:
    async with bench(verifier=Known(), **http) as b:
        refused = await b.peer().initialize(headers={"host": host})
        assert (refused.status, refused.headers["www-authenticate"]) == (401, challenge)
        wrong = await b.peer(token="wrong").initialize(headers={"host": host})
        assert wrong.headers["www-authenticate"].startswith('Bearer error="invalid_token"')


@front_test
async def test_a_verifier_that_names_no_server_has_no_metadata() -> None:
    async with bench(verifier=StaticTokens({"0123456789abcdef": "ada"})) as b:
        assert (await b.peer().send("GET", path=f"{WELL_KNOWN}/mcp").done()).status == 404
        assert (await b.peer().initialize()).headers["www-authenticate"] == "Bearer"


@front_test
async def test_the_metadata_keeps_the_rules_of_the_endpoint() -> None:
    async with bench(verifier=Known()) as b:
        path = f"{WELL_KNOWN}/mcp"
        assert (await b.peer().send("GET", path=path, headers={"host": "evil.example"}).done()).status == 421
        assert (await b.peer().send("POST", b"{}", path=path).done()).status == 405
        page = {"origin": "http://localhost:3000"}
        assert (await b.peer().send("OPTIONS", path=path, headers=page).done()).status == 204


def test_the_audience_of_a_jwt_is_the_resource() -> None:
    made = JwtVerifier(issuer="https://id.example", audience=["https://tools.example/mcp", "other"])
    both = AnyOf(StaticTokens({"0123456789abcdef": "ada"}), made, made)
    for verifier in (made, both):
        assert verifier.authorization_servers == ("https://id.example",)
        assert verifier.resource == "https://tools.example/mcp"


@async_test
async def test_an_audience_that_is_no_url_is_not_the_resource() -> None:
    server = Server("mail", verifier=JwtVerifier(issuer="https://id.example", audience="mail-api"))
    app = server.asgi(allowed_hosts=["tools.example", "localhost"])
    async with aclosing(server.engine):
        for host, status, challenge in (
            ("localhost", 200, f'Bearer resource_metadata="http://localhost{WELL_KNOWN}/mcp"'),
            ("tools.example", 404, "Bearer"),
        ):
            found = await Peer(app).send("GET", path=f"{WELL_KNOWN}/mcp", headers={"host": host}).done()
            assert found.status == status
            refused = await Peer(app).initialize(headers={"host": host})
            assert refused.headers["www-authenticate"] == challenge


@async_test
async def test_two_endpoints_do_not_share_a_resource() -> None:
    shared = JwtVerifier(issuer="https://id.example", audience="https://tools.example")
    pair = Servers({"/a": Server("a", verifier=shared), "/b": Server("b", verifier=shared)}).asgi()
    with pytest.raises(ConfigError, match="give each its own public_url"):
        await Peer(pair).initialize()


@pytest.mark.parametrize(
    "url", ["tools.example/mcp", "ftp://tools.example", 'https://a.example/"', "https://a.example/ b"]
)
def test_a_public_url_is_a_whole_url(url: str) -> None:
    with pytest.raises(ConfigError, match="public_url"):
        HttpSettings(public_url=url)


@async_test
async def test_endpoints_of_one_process_have_their_own_metadata() -> None:
    router = Servers(
        {
            "/a/mcp": Server("a", verifier=Known(server="https://a.example")),
            "/b/mcp": Server("b", verifier=Known(server="https://b.example")),
        }
    ).asgi()
    for name in ("a", "b"):
        found = await Peer(router).send("GET", path=f"{WELL_KNOWN}/{name}/mcp").done()
        assert found.json["authorization_servers"] == [f"https://{name}.example"]
    assert (await Peer(router).send("GET", path=WELL_KNOWN).done()).status == 404


@async_test
async def test_our_client_signs_in_to_our_server() -> None:
    async with authority() as at:
        server = Server("kitchen", verifier=Known(at))

        @server.tool()
        def cook(dish: str) -> str:
            return f"{dish} is ready"

        with listening() as sock:
            url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
            async with Service(server.front(HttpSettings())).running([sock]):
                async with Client(url, auth=signing_in(at)) as client:
                    assert (await client.call_tool("cook", {"dish": "soup"})).data == "soup is ready"
                assert at.forms[0]["resource"] == url, "the token is for our endpoint and no other"


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@async_test
async def test_our_client_asks_for_the_scopes_that_a_call_needs_and_keeps_those_it_has(version: str) -> None:
    async with authority() as at:
        server = Server("kitchen", verifier=Known(at), scopes={"kitchen"})
        runs: list[str] = []

        @server.tool
        def menu() -> str:
            return "soup"

        @server.tool(scopes={"stove"})
        def cook(dish: str) -> str:
            runs.append(dish)
            return f"{dish} is ready"

        @server.tool(scopes={"knife", "stove"})
        def carve(dish: str) -> str:
            return f"{dish} is carved"

        with listening() as sock:
            url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
            async with (
                Service(server.front(HttpSettings())).running([sock]),
                Client(url, auth=signing_in(at), protocol_version=version) as client,
            ):
                assert (await client.call_tool("menu")).data == "soup"
                assert (await client.call_tool("cook", {"dish": "soup"})).data == "soup is ready"
                assert (await client.call_tool("carve", {"dish": "ham"})).data == "ham is carved"
                assert (await client.call_tool("cook", {"dish": "tea"})).data == "tea is ready"
    assert [sorted(scopes.split()) for scopes in at.asked_scopes] == [
        ["kitchen"],
        ["kitchen", "stove"],
        ["kitchen", "knife", "stove"],
    ]
    assert runs == ["soup", "tea"], "a refused call did not run"
