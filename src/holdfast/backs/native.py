"""The native back: functions of this process answer exchanges, by one table from method to handler.

A result stays a Struct until it is encoded, once, at the end.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from holdfast.core.lifecycle import SessionInput
from holdfast.engine.access import Access
from holdfast.engine.back import Outside
from holdfast.engine.caller import Caller
from holdfast.engine.exchange import Client, Exchange
from holdfast.engine.session import Session
from holdfast.engine.sessionless_client import SessionlessClient
from holdfast.errors import InvalidParams, MethodNotFound, ResourceNotFound
from holdfast.protocol.methods import NOT_IN_SESSIONS, NOT_SESSIONLESS
from holdfast.protocol.mirrored_headers import MirroredParameter
from holdfast.protocol.older import fit
from holdfast.protocol.results import Result
from holdfast.protocol.sessionless import RequestMeta
from holdfast.protocol.subscriptions import Filter
from holdfast.protocol.types import Implementation
from holdfast.protocol.versions import LATEST, SESSIONLESS
from holdfast.stores.base import SessionRecord
from holdfast.wire.jsonrpc import Request, encode

Handler = Callable[[Exchange, dict[str, Any]], Awaitable[Result]]
"""Answers a request of one method, given its exchange and its params."""


class App(Protocol):
    """The application whose functions answer: a `Server`."""

    handlers: Mapping[str, Handler]
    info: Implementation

    def describe(self) -> dict[str, Any]:
        """Return capabilities, server info and instructions for an initialize result."""
        ...

    def encode_sessionless(self, result: Result) -> bytes:
        """Encode a result with the members that 2026-07-28 requires."""
        ...

    @property
    def access(self) -> Access:
        """The scopes that requests need."""
        ...

    def mirrored(self, tool: object, caller: Caller) -> tuple[MirroredParameter, ...]:
        """Return the parameters of a tool that HTTP headers repeat; empty for a tool that the caller may not see."""
        ...

    def is_idempotent(self, tool: object, client: Client | None) -> bool:
        """Return True if a tool declares that a second call has no further effect; False for an unknown tool."""
        ...

    async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
        """Return the part of a listener's filter that this client gets notifications for."""
        ...

    async def start(self) -> None:
        """Prepare to answer."""
        ...

    async def stop(self) -> None:
        """Release the resources that `start` acquired."""
        ...

    async def heard(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """Process a notification of a client."""
        ...

    def hears(self, event: str) -> bool:
        """Return True if the app has a listener of a session event."""
        ...

    async def moved(self, event: str, session: Session, *reason: str) -> None:
        """Process a session event: opened, detached, reattached or closed."""
        ...


class NativeBack:
    """Answers exchanges from the table of an application."""

    __slots__ = ("_app", "access")

    def __init__(self, app: App) -> None:
        self._app = app
        self.access: Access = app.access

    def __repr__(self) -> str:
        return f"<NativeBack of {self._app!r}>"

    async def start(self, outside: Outside) -> None:  # noqa: ARG002 - an app has its engine
        """Start the app."""
        await self._app.start()

    async def stop(self) -> None:
        """Stop the app."""
        await self._app.stop()

    def initialize(self, record: SessionRecord, caller: Caller) -> dict[str, Any]:  # noqa: ARG002
        """Return the app's description in the format of the session's revision."""
        described = self._app.describe()
        return {**described, "serverInfo": fit(record.version, described["serverInfo"])}

    async def dropped(self, record: SessionRecord) -> None:
        """Do nothing: this back keeps no data for a session."""

    @property
    def server_info(self) -> Implementation:
        """Return the name and version of the app."""
        return self._app.info

    def mirrored(self, request: Request, meta: RequestMeta, caller: Caller) -> tuple[MirroredParameter, ...]:  # noqa: ARG002
        """Return the parameters of the called tool that HTTP headers repeat."""
        return (
            self._app.mirrored(request.params.get("name"), caller) if request.method == "tools/call" else ()
        )

    async def is_idempotent(self, request: Request, client: Client | None = None) -> bool:
        """Return True if the request calls an idempotent tool; no other request is run again."""
        return request.method == "tools/call" and self._app.is_idempotent(request.params.get("name"), client)

    async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
        """Return the part of the filter that the app supports for this client."""
        return await self._app.honoured(client, wanted, caller)

    async def handle(self, exchange: Exchange) -> bytes:
        """Find the handler, call it, encode its result."""
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
            # 2026-07-28 has no code for an unknown resource: it is an invalid parameter.
            raise InvalidParams(error.message, error.data) from error

    async def notify(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """Forward it to the app."""
        await self._app.heard(session, method, params)

    @property
    def hears_opened(self) -> bool:
        """Return True if the app has a listener for it."""
        return self._app.hears("opened")

    async def opened(self, session: Session) -> None:
        """Forward it to the app."""
        await self._app.moved("opened", session)

    async def detached(self, session: Session) -> None:
        """Forward it to the app."""
        await self._app.moved("detached", session)

    async def reattached(self, session: Session) -> None:
        """Forward it to the app."""
        await self._app.moved("reattached", session)

    async def closed(self, session: Session, reason: SessionInput) -> None:
        """Forward the event with the text of the reason."""
        await self._app.moved("closed", session, reason.value)

    @property
    def has_home(self) -> bool:
        """Return False: any replica answers any request."""
        return False

    async def moved(self, record: SessionRecord) -> None:
        """Do nothing: sessions have no home."""

    async def left(self, key: str) -> None:
        """Do nothing: sessions have no home."""
