"""The smallest Holdfast server: one tool, as `holdfast serve` runs it. Port in $PORT."""

from holdfast import Server

server = Server("bench", version="1")


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text
