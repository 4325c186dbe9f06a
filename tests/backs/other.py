"""Another server, in the same process."""

from limpet import Server

server = Server("native")


@server.tool
async def who() -> str:
    """Return a name that is not the server's own, which another one has too."""
    return "guarded"
