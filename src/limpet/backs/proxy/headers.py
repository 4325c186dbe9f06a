"""The HTTP headers of calls to the server: those of the client (passing.py), and those that repeat parameters.

A server at the end of a pipe receives no headers. Those of a 2026-07-28 client are checked for it too, as every HTTP
server must.

**Mirrors**: the parameters of a 2026-07-28 server's tools that headers repeat (`x-mcp-header`), for one upstream.
The server refuses a call without these headers. A client of 2025 does not send them, so we add them from the arguments.
A client of 2026-07-28 over HTTP sends them to us; we check them against the arguments, as every HTTP server must, and
send our own.

The schemas come from `tools/list`: from a page that a client requested, or from our own request before the first call.
A server that does not report changes can change a schema without our knowledge. So if a header does not fit, here or
at the server, the list is read once more before the call is refused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.backs.proxy.passing import Passing
from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.engine.exchange import Exchange
from limpet.errors import ConfigError, HeaderMismatch, LimpetError
from limpet.ports import Observer
from limpet.protocol.mirrored_headers import (
    PARAM_PREFIX,
    MirroredParameter,
    check_parameters,
    headers_of,
    mirrored_parameters,
)
from limpet.protocol.versions import SESSIONLESS
from limpet.single_flight import SingleFlight
from limpet.upstream.pending import NO_HEADERS

ListTools = Callable[[str], Awaitable[bytes]]
"""Returns the page of `tools/list` at a cursor; an empty cursor is the first page."""
Table = Mapping[str, tuple[MirroredParameter, ...]]
_MARK: Final = b"x-mcp-header"
_MOST_PAGES: Final = 100
_SECONDS: Final = 10.0
"""How long reading the list may take. After that the call is sent without the headers."""


class _Tool(Struct):
    name: str
    inputSchema: dict[str, Any] = {}  # noqa: N815 - as it travels


class _HeaderPage(Struct):
    tools: list[_Tool] = []
    nextCursor: str | None = None  # noqa: N815


class _End(Struct):
    nextCursor: str | None = None  # noqa: N815


_decode_page = msgspec.json.Decoder(_HeaderPage).decode
_decode_end = msgspec.json.Decoder(_End).decode


class Mirrors:
    """The mirrored parameters by tool."""

    def __init__(self, list_tools: ListTools, observer: Observer) -> None:
        self._list_tools = list_tools
        self._observer = observer
        self._table: Table | None = None
        self._changes = 0
        self._flights: SingleFlight[Table] = SingleFlight()

    def forget(self) -> None:
        """The tools have changed: read the list again before the next call."""
        self._table = None
        self._changes += 1

    def learn(self, page: bytes) -> None:
        """Take the only page of a list that a client requested."""
        try:
            if _decode_end(page).nextCursor is None:
                self._table = dict(self._mirrored(page)) if _MARK in page else {}
        except msgspec.DecodeError as error:
            self._observer.note("upstream.unreadable_list", error=error)

    def has_none(self, tool: object) -> bool:
        """True if it is known that no header repeats a parameter of this tool."""
        return self._table is not None and str(tool) not in self._table

    async def headers(
        self, params: Mapping[str, Any], sent: Mapping[str, str], *, fresh: bool = False
    ) -> dict[str, str]:
        """Return the headers that repeat parameters of a call. `fresh` reads the list before.

        `sent` are the headers of a 2026-07-28 client's own request, which must fit; empty if there are none to check.

        Raises:
            HeaderMismatch: they do not fit.
        """
        name, arguments = params.get("name"), params.get("arguments")
        if fresh:
            self.forget()
        table = await self._known()
        if sent:
            try:
                check_parameters(sent.get, table.get(str(name), ()), arguments)
            except HeaderMismatch:
                if fresh:
                    raise
                return await self.headers(params, sent, fresh=True)
        return headers_of(table.get(str(name), ()), arguments)

    async def _known(self) -> Table:
        table = self._table
        return table if table is not None else await self._flights.join(self._changes, self._read)

    async def _read(self) -> Table:
        """Read all pages. If that fails, no header is known, and the server decides about the call."""
        changes, table = self._changes, dict[str, tuple[MirroredParameter, ...]]()
        cursor: str | None = ""
        try:
            async with asyncio.timeout(_SECONDS):
                for _ in range(_MOST_PAGES):
                    page = await self._list_tools(cursor or "")
                    if _MARK in page:
                        table.update(self._mirrored(page))
                    cursor = _decode_end(page).nextCursor
                    if cursor is None:
                        break
        except (LimpetError, TimeoutError, msgspec.DecodeError) as error:
            self._observer.note("upstream.unreadable_list", error=error)
        if changes == self._changes:
            self._table = table
        return table

    def _mirrored(self, page: bytes) -> list[tuple[str, tuple[MirroredParameter, ...]]]:
        found: list[tuple[str, tuple[MirroredParameter, ...]]] = []
        for tool in _decode_page(page).tools:
            try:
                mirrored = mirrored_parameters(tool.inputSchema, tool.name)
            except ConfigError as error:
                # Clients leave out such a tool. Those that call it anyway get the server's answer.
                self._observer.note("upstream.invalid_tool", tool=tool.name[:100], error=error)
                continue
            if mirrored:
                found.append((tool.name, mirrored))
        return found


class CallHeaders:
    """Makes the headers of the calls of one upstream."""

    def __init__(self, target: Target, client: UpstreamClient, mirrors: Mirrors) -> None:
        self._passing: Passing = target.passing
        self._are_sent = target.has_headers
        self._client = client
        self._mirrors = mirrors
        self._mirrors_parameters = False

    def are_needed(self, *, sessionless: bool) -> bool:
        """Begin to speak this era with the server. False: no call has headers, and none need to be checked."""
        self._mirrors_parameters = sessionless
        return sessionless or bool(self._passing.names)

    async def of(self, exchange: Exchange, *, is_refused: bool = False) -> Mapping[str, str]:
        """Return the headers of a call.

        `is_refused`: the server has refused the last ones, because they do not fit the body.

        Raises:
            HeaderMismatch: those of a 2026-07-28 client do not fit its own request.
        """
        passed = self.passed(exchange)
        request = exchange.inner
        is_sessionless = exchange.session.revision is SESSIONLESS
        if request.method != "tools/call" or not self._mirrors_parameters:
            return passed
        if not (self._are_sent or is_sessionless):
            return NO_HEADERS
        if not is_refused and self._mirrors.has_none(request.params.get("name")):
            return passed
        if self._client.is_single:
            # Reading the list would cost more than the call. The client has the list, and the server checks its
            # headers.
            own = {name: value for name, value in exchange.headers.items() if name.startswith(PARAM_PREFIX)}
        else:
            sent = exchange.headers if is_sessionless else NO_HEADERS
            own = await self._mirrors.headers(request.params, sent, fresh=is_refused)
        return {**passed, **own}

    def passed(self, exchange: Exchange) -> Mapping[str, str]:
        """Return the client's headers that are passed on."""
        if not self._passing.names:
            return NO_HEADERS
        passed = self._passing.of(exchange.headers)
        if passed != self._client.passed:
            # A session, whose client has another token now. A shared upstream has clients with equal headers.
            self._client.passed.clear()
            self._client.passed.update(passed)
        return passed
