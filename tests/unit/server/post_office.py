"""A server whose components need scopes, a verifier whose tokens name their scopes, and clients of both eras."""

import asyncio
from typing import Any

from holdfast import Context, Server
from holdfast.auth import Principal
from tests.asgi import Call, Peer
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

    def __init__(self, server: Server) -> None:
        self._app = server.asgi()

    async def ask(self, token: str, method: str, params: dict[str, Any]) -> Call:
        peer = Peer(self._app, token=token)
        await peer.initialize()
        return await peer.post(request(1, method, params)).done()


class Sessionless:
    """Clients of 2026-07-28."""

    def __init__(self, server: Server) -> None:
        self._app = server.asgi()

    async def ask(self, token: str, method: str, params: dict[str, Any]) -> Call:
        return await Peer(self._app, token=token).modern(method, params).done()
