"""The first connection to each server behind, before `holdfast serve` says that it serves.

A program that cannot start would otherwise be noticed by the first client only. One of the command line ends the start; one of a
file does not, because the other servers of the file work. The server behind a URL may come back at any time: it is tried, and
a start waits for it a short while only.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from holdfast.cli.config.plan import Endpoint
from holdfast.cli.prepared import Prepared
from holdfast.cli.rows import COMMAND, OBJECT
from holdfast.errors import ConfigError, McpError
from holdfast.server.proxy import Proxy
from holdfast.transports.loops import Beside

URL_SECONDS: Final = 3.0
"""How long the start waits for a server behind a URL."""
_LATER: Final = "not known yet: it has not answered"


@contextlib.asynccontextmanager
async def probing(prepared: Prepared, beside: Beside | None) -> AsyncIterator[None]:
    """Connect to each server behind once; then enter the other context. `prepared.behind` has the results for the banner.

    Raises:
        ConfigError: the program of the command line does not work.
    """
    tasks = {
        name: asyncio.create_task(_probe(server, endpoint))
        for name, server, endpoint in prepared.each()
        if isinstance(server, Proxy)
        and endpoint.source.kind != OBJECT
        and endpoint.options.probe is not False
    }
    try:
        for name, _, endpoint in prepared.each():
            if (task := tasks.get(name)) is not None:
                limit = None if endpoint.source.kind == COMMAND else URL_SECONDS
                done, _ = await asyncio.wait({task}, timeout=limit)
                prepared.behind[name] = task.result() if done else _LATER
        async with beside or contextlib.nullcontext():
            yield
    finally:
        for task in tasks.values():
            task.cancel()


async def _probe(server: Proxy, endpoint: Endpoint) -> str:
    """Return in words whether the server behind answers."""
    options = endpoint.options
    if server.back.needs_credentials:
        return "not tried: it needs a value from the request of a client"
    if options.oauth or options.oauth_callback:
        return "not tried: the first client signs in"
    try:
        agreed = await server.back.probe()
    except McpError as error:
        reason = str(error.__cause__ or error).replace("ClientTimes.connect", "--start-timeout")
        if endpoint.source.kind == COMMAND and not endpoint.name:
            raise ConfigError(
                f"{endpoint.source.command[0]} does not work as an MCP server: {reason}; --no-probe serves without this test"
            ) from None
        return f"fails: {reason}"
    info = " ".join(str(agreed.server[key]) for key in ("name", "version") if agreed.server.get(key))
    return f"answers{f' as {info}' if info else ''} ({agreed.version})"
