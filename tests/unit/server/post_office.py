"""A server whose components need scopes, a verifier whose tokens name their scopes, and clients of both eras."""

import asyncio
from typing import Any

import pytest

from limpet import Context, Server
from limpet.auth import Principal
from tests.asgi import Application, Call, Peer
from tests.messages import request

MAIL = frozenset({"mail.read"})
METADATA = 'resource_metadata="http://localhost:8000/.well-known/oauth-protected-resource/mcp"'


class Known:
    """A verifier whose tokens are lists of scopes: `mail.read+mail.send`."""

    authorization_servers = ("https://id.example",)

    async def __call__(self, token: str) -> Principal | None:
        scopes = frozenset(token.split("+")) - {"none"}
        return Principal(subject="ada", scopes=scopes)


class PostOffice(Server):
    """Some components need no scope, some need one and are listed, some are hidden without it."""

    def __init__(self, **options: Any) -> None:
        super().__init__("post", **{"verifier": Known(), **options})
        self.ran: list[str] = []
        self.release = asyncio.Event()
        _register(self)


def _register(server: PostOffice) -> None:  # noqa: C901 - a list of functions
    ran = server.ran

    @server.tool
    def count() -> int:
        return 3

    @server.tool(scopes={"mail.send"})
    def send(to: str = "") -> str:
        ran.append("send")
        return f"sent to {to}"

    @server.tool(scopes={"admin"}, hidden=True)
    def purge() -> str:
        ran.append("purge")
        return "gone"

    @server.resource("mail://inbox", scopes=MAIL)
    def inbox() -> str:
        return "letters"

    @server.resource("mail://{box}/{number}", scopes=MAIL)
    def letter(box: str, number: str) -> str:
        return f"{box} {number}"

    @server.resource("vault://key", scopes={"admin"}, hidden=True)
    def key() -> str:
        return "secret"

    @server.resource("vault://box/{name}", scopes={"admin"}, hidden=True)
    def vault_box(name: str) -> str:
        return f"secret {name}"

    @server.prompt(scopes={"mail.send"})
    def draft(topic: str) -> str:
        return f"Write about {topic}"

    @server.prompt(scopes={"admin"}, hidden=True)
    def plot(victim: str) -> str:
        return f"Plot against {victim}"

    @server.completion
    def complete(value: str) -> list[str]:
        ran.append("complete")
        return [f"{value}1"]

    @server.tool(scopes={"mail.send"})
    async def post(ctx: Context) -> str:
        ran.append("post")
        await ctx.info("begun")
        await server.release.wait()
        return "posted"

    @server.tool(scopes={"admin"}, hidden=True)
    async def burn(ctx: Context) -> str:
        ran.append("burn")
        await ctx.info("begun")
        await server.release.wait()
        return "burnt"

    @server.tool(scopes={"mail.send"})
    async def sign(ctx: Context) -> str:
        ran.append("sign")
        return f"signed by {(await ctx.sample('who?')).text}"

    @server.tool(scopes={"admin"}, hidden=True)
    async def seal(ctx: Context) -> str:
        ran.append("seal")
        return f"sealed by {(await ctx.sample('who?')).text}"

    @server.tool(scopes={"mail.send"}, task="optional")
    def bulk() -> str:
        ran.append("bulk")
        return "all sent"


class Sessions:
    """Clients of 2025-11-25."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def ask(self, token: str, method: str, params: dict[str, Any]) -> Call:
        peer = Peer(self._app, token=token)
        await peer.initialize()
        return await peer.post(request(1, method, params)).done()


class Sessionless:
    """Clients of 2026-07-28."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def ask(self, token: str, method: str, params: dict[str, Any]) -> Call:
        return await Peer(self._app, token=token).sessionless(method, params).done()


both = pytest.mark.parametrize("era", [Sessions, Sessionless])


def prompt(name: str) -> dict[str, Any]:
    return {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "topic", "value": "a"}}


def template(uri: str) -> dict[str, Any]:
    return {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "box", "value": "a"}}


LETTER = "mail://{box}/{number}"
NEEDED: list[tuple[str, dict[str, Any], str]] = [
    ("tools/call", {"name": "send", "arguments": {}}, "mail.send"),
    ("resources/read", {"uri": "mail://inbox"}, "mail.read"),
    ("resources/read", {"uri": "mail://inbox/7"}, "mail.read"),
    ("prompts/get", {"name": "draft", "arguments": {"topic": "tea"}}, "mail.send"),
    ("completion/complete", prompt("draft"), "mail.send"),
    ("completion/complete", template(LETTER), "mail.read"),
]
"""Requests that name a component, and the scope that it needs."""

HIDDEN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("tools/call", {"name": "purge"}, {"name": "purgx"}),
    ("resources/read", {"uri": "vault://key"}, {"uri": "vault://kex"}),
    ("resources/read", {"uri": "vault://box/a"}, {"uri": "vault://bax/a"}),
    ("prompts/get", {"name": "plot", "arguments": {}}, {"name": "plox", "arguments": {}}),
    ("completion/complete", prompt("plot"), prompt("plox")),
    ("completion/complete", template("vault://box/{name}"), template("vault://bax/{name}")),
]
"""Requests that name a hidden component, and the same with a name that nothing has."""


UNKNOWN: list[tuple[str, dict[str, Any]]] = [
    *((method, other) for method, _, other in HIDDEN),
    ("completion/complete", {**prompt("x"), "ref": {"type": "ref/other", "name": "x"}}),
    ("completion/complete", {**prompt("x"), "ref": {"type": "ref/prompt"}}),
    ("completion/complete", {**prompt("x"), "ref": {"type": "ref/resource", "uri": 7}}),
    ("completion/complete", {**prompt("x"), "ref": "draft"}),
    ("completion/complete", {"argument": {"name": "topic", "value": "a"}}),
    ("tools/call", {"name": 7}),
    ("resources/read", {"uri": None}),
]
"""Requests that name no component of the server, or none in a form that it understands."""


def as_misspelt(answer: Call) -> str:
    """Return all of an answer that a client sees, with the names of hidden components as in the requests beside them."""
    seen = str((answer.status, sorted(answer.headers), answer.json))
    for known, misspelt in (("purge", "purgx"), ("key", "kex"), ("box/", "bax/"), ("plot", "plox")):
        seen = seen.replace(known, misspelt)
    return seen
