"""A server for a child process: its tool returns the context that came with the call."""

from limpet import Context, Server

server = Server("behind")


@server.tool
async def context(ctx: Context) -> str:
    """Return the traceparent of the request."""
    return str(ctx.meta.get("traceparent"))


server.run()
