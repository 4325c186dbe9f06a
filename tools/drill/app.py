"""The server of the drill. Its tools fail, block or hang on demand; `verify` asks an authorization server that is not there."""

import asyncio
import time

from limpet import Context, Server, ToolError
from limpet.auth.verifiers import Introspection

server = Server("drill")
verify = Introspection(
    "http://127.0.0.1:9/introspect",
    client_id="drill",
    client_secret="drill",  # noqa: S106 - a made-up one
    audience="https://drill.example/mcp",
)


@server.tool
async def quick(text: str = "") -> str:
    """Answer at once."""
    return text


@server.tool
async def lookup(*, known: bool = True) -> str:
    """Fail, if the client says so."""
    if not known:
        raise ToolError("the database has no such row")
    return "found"


@server.tool
async def hang() -> str:
    """Wait forever."""
    await asyncio.Event().wait()
    return ""


@server.tool
async def report() -> str:
    """Block the event loop, as a mistake of an author does."""
    time.sleep(8)  # noqa: ASYNC251 - the mistake
    return "done"


@server.tool
async def export(ctx: Context) -> str:
    """Send until the client takes no more."""
    for number in range(100_000):
        await ctx.progress(number, message="x" * 20_000)
    return ""


if __name__ == "__main__":
    server.run()
