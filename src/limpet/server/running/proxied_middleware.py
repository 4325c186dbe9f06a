"""Middleware around the requests that a server behind answers.

The interface is that of a `Server` (`authoring/middleware.py`).

    engine ──▶ ShownBack ──▶ MiddlewareBack ──▶ the middleware, the first outermost ──▶ ProxyBack ──▶ the server behind

A middleware gets the result as the type of its method. The result may have members that no revision defines, which that
type does not have. So a result that the middleware returns unchanged is sent as the server wrote it, and a changed one
keeps these members. A result that does not fit its type, such as that of an extension, is an empty `Result` for the
middleware.
"""

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from limpet.engine.back import Back
from limpet.engine.exchange import Exchange
from limpet.errors import InvalidParams
from limpet.protocol.older import fit
from limpet.protocol.types import (
    CallToolResult,
    CompleteResult,
    DiscoverResult,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
    Result,
)
from limpet.protocol.versions import LATEST, SESSIONLESS
from limpet.server.authoring.middleware import Middleware, MiddlewareRequest, chain_of, passed
from limpet.server.context.context import Context
from limpet.server.running.sessionless_results import SessionlessResults
from limpet.wire.jsonrpc import Request, encode

if TYPE_CHECKING:
    from limpet.server.catalog.server_controls import ServerControls

_TYPES: Final[dict[str, type[Result]]] = {
    "server/discover": DiscoverResult,
    "tools/call": CallToolResult,
    "tools/list": ListToolsResult,
    "resources/list": ListResourcesResult,
    "resources/templates/list": ListResourceTemplatesResult,
    "resources/read": ReadResourceResult,
    "prompts/list": ListPromptsResult,
    "prompts/get": GetPromptResult,
    "completion/complete": CompleteResult,
}
"""The results that a middleware reads, by method."""
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def middleware_back(back: Back, chain: Sequence[Middleware], server: object) -> Back:
    """Return a back with middleware around its handlers; the back itself without middleware."""
    return cast("Back", MiddlewareBack(back, chain, cast("ServerControls", server))) if chain else back


class MiddlewareBack:
    """A back with middleware around its handlers. Everything else is the back's own."""

    def __init__(self, back: Back, chain: Sequence[Middleware], server: "ServerControls") -> None:
        self._back = back
        self._chain = chain
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._back, name)

    def handle(self, exchange: Exchange) -> Awaitable[bytes]:
        """Let the middleware and the back answer."""
        chain = chain_of(self._chain, exchange.inner.method)
        return self._run_chain(exchange, chain) if chain else self._back.handle(exchange)

    async def _run_chain(self, exchange: Exchange, chain: Sequence[Middleware]) -> bytes:
        method, server = exchange.inner.method, self._server
        answers: list[tuple[Result, bytes]] = []

        async def innermost(request: MiddlewareRequest) -> Result:
            if request.params is not exchange.inner.params:
                # A middleware may have put another name into the params, after the request was checked.
                exchange.inner = Request(exchange.inner.id, method, request.params)
                access = self._back.access.own
                if access.judge(exchange.inner, exchange.caller, exchange.session_key) is None:
                    raise InvalidParams("Unknown component")
            answer = await self._back.handle(exchange)
            answers.append((_read(method, answer), answer))
            return answers[-1][0]

        request = MiddlewareRequest(method, exchange.inner.params, Context(exchange, server, server))
        result = await passed(chain, request, innermost, exchange, server)
        for known, answer in answers:
            if result is known:
                return answer
        written = self._written(exchange, result)
        return written if not answers else _merged(answers[-1][1], type(result), written)

    def _written(self, exchange: Exchange, result: Result) -> bytes:
        """Return a result of a middleware in the form of the client's revision."""
        revision = exchange.session.revision
        if revision is SESSIONLESS:
            return SessionlessResults(self._back.server_info).encode(result)
        return encode(result if revision is LATEST else fit(revision.name, result))


def _read(method: str, answer: bytes) -> Result:
    try:
        return msgspec.json.decode(answer, type=_TYPES.get(method, Result))
    except msgspec.DecodeError:
        return Result()


def _merged(answer: bytes, kind: type[Result], written: bytes) -> bytes:
    """Return a changed result with the members of the server's answer that its type does not have."""
    try:
        members = _decode_members(answer)
    except msgspec.DecodeError:
        return written
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    others = {name: value for name, value in members.items() if name not in known}
    return encode({**others, **_decode_members(written)})
