"""Requests to an author's routes: who may call them, and the answer if they fail.

A route may demand a principal, and scopes. It then has the verifier and the challenges of the endpoint.
"""

from collections.abc import MutableMapping
from typing import Any, Final, Protocol

from limpet.auth import Principal
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.errors import INTERNAL_ERROR, InsufficientScope
from limpet.fronts.http.decide.identity import Identities
from limpet.fronts.http.decide.protection import Protection
from limpet.fronts.http.read.body import BadBody
from limpet.fronts.http.read.request import Channel, Gone, Receive, Scope, Send
from limpet.fronts.http.write.answer import Answer, refuse
from limpet.fronts.http.write.response import WaitingResponse

PRINCIPAL: Final = "limpet.principal"
"""The member of an ASGI scope with the principal of a request."""
_FAILED: Final = refuse(500, "Internal error: the route failed; see the server's log", code=INTERNAL_ERROR)


class RouteApplication(Protocol):
    """The routes of one path, as an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. The principal is in the scope if the route demands one."""

    def demand(self, method: str) -> frozenset[str] | None:
        """Return the scopes that a request of this method needs; None if it needs no principal."""


class CustomRoutes:
    """Runs the routes of one endpoint."""

    def __init__(self, engine: Engine, identity: Identities | None, protection: Protection) -> None:
        self._engine = engine
        self._identity = identity
        self._protection = protection

    async def admit(self, route: RouteApplication, response: WaitingResponse) -> Principal | Answer | None:
        """Return the principal that a route demands, or a refusal; None if the route is public."""
        request = response.request
        scopes = route.demand(request.method)
        if scopes is None or self._identity is None:
            return None
        found = await self._identity.of(request)
        if isinstance(found, Answer):
            return found
        response.principal = found
        try:
            self._engine.access.demand(scopes, Caller(found.key, found))
        except InsufficientScope as missing:
            return self._protection.forbidden(request.head, missing)
        return found

    async def run(
        self,
        route: RouteApplication,
        principal: Principal | None,
        channel: Channel,
        response: WaitingResponse,
    ) -> None:
        """Let an author's route answer. Its exceptions are logged here: the host's log could show text of a client."""
        begun = complete = False
        scope, receive, send = channel.asgi()
        path = response.request.path

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal begun, complete
            begun, complete = True, message["type"] == "http.response.body" and not message.get("more_body")
            try:
                await send(message)
            except OSError:
                raise Gone from None

        try:
            await route({**scope, PRINCIPAL: principal}, receive, watched)
        except BadBody as bad:
            await response.answer(bad.answer)
        except Gone:
            # The client left before its whole body had arrived, or before it had its answer.
            self._engine.observer.note("route.cut", path=path)
        except Exception as error:  # noqa: BLE001 - an author's code raises anything
            self._engine.observer.note("route.failed", path=path, error=error)
            if not begun:
                await response.answer(_FAILED)
            elif not complete:
                # An incomplete answer must not look complete.
                response.abort()
