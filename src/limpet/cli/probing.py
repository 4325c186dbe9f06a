"""The first connection to each server behind, before `limpet serve` says that it serves.

A program that cannot start would otherwise be noticed by the first client only. One of the command line ends the start;
one of a file does not, because the other servers of the file work. The server behind a URL may come back at any time:
it is tried, and a start waits for it a short while only.

A hosted object is asked for its lists, because one without components is served with a warning.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

from limpet.cli.banner import EMPTY
from limpet.cli.behind import ServerSource
from limpet.cli.config.plan import Endpoint
from limpet.cli.options import Options
from limpet.cli.prepared import Prepared
from limpet.cli.rows import COMMAND, OBJECT
from limpet.errors import ConfigError, McpError
from limpet.server.app import Server
from limpet.server.proxy import Proxy
from limpet.transports.loops import Beside

if TYPE_CHECKING:
    from limpet.server.served import Served

URL_SECONDS: Final = 3.0
"""How long the start waits for a server behind a URL, and for one of several at one address."""
_LATER: Final = "not known yet: it has not answered"


@contextlib.asynccontextmanager
async def probing(prepared: Prepared, beside: Beside | None) -> AsyncIterator[None]:
    """Connect to each server behind once; then enter the other context.

    `prepared.behind` has the results for the banner.

    Raises:
        ConfigError: the program of the command line does not work.
    """
    probes = [
        (name, part, source, asyncio.create_task(_probe(proxy, source, options, is_alone=not name)))
        for name, server, endpoint in prepared.each()
        for part, proxy, source, options in _behind(server, endpoint)
        if options.probe is not False
    ]
    try:
        for name, part, source, task in probes:
            limit = None if source.kind == COMMAND and not part else URL_SECONDS
            done, _ = await asyncio.wait({task}, timeout=limit)
            result = task.result() if done else _LATER
            prepared.behind.setdefault(name, []).append(f"{part}: {result}" if part else result)
        await asyncio.gather(*(_note_empty(prepared, name, server) for name, server, _ in prepared.each()))
        async with beside or contextlib.nullcontext():
            yield
    finally:
        for *_, task in probes:
            task.cancel()


def _behind(server: "Served", endpoint: Endpoint) -> Iterator[tuple[str, Proxy, ServerSource, Options]]:
    """Yield the servers behind a server. Those of a server that is made of others have names."""
    source = endpoint.source
    if isinstance(server, Proxy) and source.kind != OBJECT:
        yield "", server, source, endpoint.options
    proxies = {one.name: one.proxy for one in server.behind} if isinstance(server, Server) else {}
    for part in source.parts:
        if part.source.kind != OBJECT and (proxy := proxies.get(part.name)) is not None:
            yield part.name, proxy, part.source, part.options


async def _note_empty(prepared: Prepared, name: str, server: "Served") -> None:
    """Find hosted objects without components, and parts without them, for the banner."""
    if isinstance(server, Proxy):
        prepared.empty |= {name} if await _find_empty(server) else set()
    if isinstance(server, Server):
        parts = {one.name: await _find_empty(one.proxy) for one in server.behind}
        own = (part for part, _ in server.declared.included if isinstance(part, Server))
        parts |= {part.label or part.name: not part.summary for part in own}
        empty = [f"{part}: warning: {EMPTY}" for part, is_empty in parts.items() if is_empty]
        prepared.behind.setdefault(name, []).extend(empty)


async def _find_empty(server: Proxy) -> bool:
    """Ask a hosted object for its lists; True if there are no components in them."""
    if not server.is_hosted:
        return False
    try:
        async with asyncio.timeout(URL_SECONDS):
            return not await server.back.find_components()
    except (McpError, TimeoutError):
        return False  # The first client gets the error.


async def _probe(server: Proxy, source: ServerSource, options: Options, *, is_alone: bool) -> str:
    """Return in words whether the server behind answers."""
    if server.back.needs_credentials:
        return "not tried: it needs a value from the request of a client"
    if options.oauth or options.oauth_callback:
        return "not tried: the first client signs in"
    try:
        agreed = await server.back.probe()
    except McpError as error:
        reason = str(error.__cause__ or error)
        if source.kind == COMMAND and is_alone:
            raise ConfigError(
                f"{source.command[0]} does not work as an MCP server: {reason}; --no-probe serves without this test"
            ) from None
        return f"fails: {reason}"
    info = " ".join(str(agreed.server[key]) for key in ("name", "version") if agreed.server.get(key))
    return f"answers{f' as {info}' if info else ''} ({agreed.version})"
