"""The native back: exchanges answered by functions of this process, one table from method to handler.

A result is a Struct until the very end and is encoded once.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from holdfast.core.lifecycle import Input
from holdfast.engine.exchange import Client, Exchange
from holdfast.engine.session import Session
from holdfast.engine.sessionless_client import SessionlessClient
from holdfast.errors import InvalidParams, MethodNotFound, ResourceNotFound
from holdfast.protocol.methods import NOT_IN_SESSIONS, NOT_SESSIONLESS
from holdfast.protocol.mirror import Mirrored
from holdfast.protocol.older import fit
from holdfast.protocol.results import Result
from holdfast.protocol.subscriptions import Filter
from holdfast.protocol.types import Implementation
from holdfast.protocol.versions import LATEST, SESSIONLESS, Revision
from holdfast.wire.jsonrpc import Request, encode

Handler = Callable[[Exchange, dict[str, Any]], Awaitable[Result]]
"""Answers a request of one method, given its exchange and its params."""


class App(Protocol):
    """Whose functions answer."""

    handlers: Mapping[str, Handler]
    info: Implementation

    def describe(self) -> dict[str, Any]:
        """Return capabilities, server info and instructions as they travel."""
        ...

    def encode_sessionless(self, result: Result) -> bytes:
        """Encode a result with what 2026-07-28 wants of every one."""
        ...

    def mirrored(self, tool: object) -> tuple[Mirrored, ...]:
        """Return the parameters of a tool that headers mirror; nothing for what is no tool."""
        ...

    def is_idempotent(self, tool: object, client: Client | None) -> bool:
        """Tell whether a tool declares that calling it again has no further effect; False for what is no tool."""
        ...

    async def honoured(self, client: SessionlessClient, wanted: Filter) -> Filter:
        """Return what of a listener's filter this client will be told of."""
        ...

    async def start(self) -> None:
        """Get ready to answer."""
        ...

    async def stop(self) -> None:
        """Let go of what `start` took."""
        ...

    async def heard(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """Take a client's notification."""
        ...

    async def moved(self, event: str, session: Session, *reason: str) -> None:
        """Take note of a session's transition: opened, detached, reattached or closed."""
        ...


class NativeBack:
    """Answers from an app's table."""

    __slots__ = ("_app",)

    def __init__(self, app: App) -> None:
        self._app = app

    def __repr__(self) -> str:
        return f"<NativeBack of {self._app!r}>"

    async def start(self) -> None:
        """Start the app."""
        await self._app.start()

    async def stop(self) -> None:
        """Stop the app."""
        await self._app.stop()

    def initialize(self, params: dict[str, Any], revision: Revision) -> dict[str, Any]:  # noqa: ARG002
        """Return what the app says of itself, in the words of this revision."""
        described = self._app.describe()
        return {**described, "serverInfo": fit(revision.name, described["serverInfo"])}

    @property
    def server_info(self) -> Implementation:
        """Return the name and version of the app."""
        return self._app.info

    def mirrored(self, method: str, params: dict[str, Any]) -> tuple[Mirrored, ...]:
        """Ask the app about the tool that is called."""
        return self._app.mirrored(params.get("name")) if method == "tools/call" else ()

    def is_idempotent(self, request: Request, client: Client | None = None) -> bool:
        """Ask the app about the tool that is called; nothing else is ever run again."""
        return request.method == "tools/call" and self._app.is_idempotent(request.params.get("name"), client)

    async def honoured(self, client: SessionlessClient, wanted: Filter) -> Filter:
        """Ask the app."""
        return await self._app.honoured(client, wanted)

    async def handle(self, exchange: Exchange) -> bytes:
        """Look up, call, encode."""
        request, revision = exchange.request, exchange.session.revision
        handler = self._app.handlers.get(request.method)
        if handler is None or request.method in (
            NOT_SESSIONLESS if revision is SESSIONLESS else NOT_IN_SESSIONS
        ):
            raise MethodNotFound(request.method[:100])
        if revision is LATEST:
            return encode(await handler(exchange, request.params))
        if revision is not SESSIONLESS:
            return encode(fit(revision.name, await handler(exchange, request.params)))
        try:
            return self._app.encode_sessionless(await handler(exchange, request.params))
        except ResourceNotFound as error:
            # What used to have a code of its own is a wrong parameter here.
            raise InvalidParams(error.message, error.data) from error

    async def notify(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """Pass it on."""
        await self._app.heard(session, method, params)

    async def opened(self, session: Session) -> None:
        """Pass it on."""
        await self._app.moved("opened", session)

    async def detached(self, session: Session) -> None:
        """Pass it on."""
        await self._app.moved("detached", session)

    async def reattached(self, session: Session) -> None:
        """Pass it on."""
        await self._app.moved("reattached", session)

    async def closed(self, session: Session, reason: Input) -> None:
        """Pass it on, with the reason's word."""
        await self._app.moved("closed", session, reason.value)
