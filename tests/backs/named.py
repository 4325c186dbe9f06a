"""A server that says its name, for files with several servers: as an object, as a program, and behind a URL."""

import os

from limpet import Principal, Server

NAME = os.environ.get("NAME", "native")
server = Server(NAME)


@server.tool
async def who() -> str:
    """Return the name."""
    return NAME


async def verify(token: str) -> Principal | None:
    """Know one token."""
    return Principal(subject="ada") if token == "right" else None


if __name__ == "__main__":
    server.run()
