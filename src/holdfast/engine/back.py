"""What the engine needs of a back: somebody who answers."""

from typing import Any, Protocol

from holdfast.core.lifecycle import Input
from holdfast.engine.exchange import Client, Exchange
from holdfast.engine.session import Session
from holdfast.engine.sessionless_client import SessionlessClient
from holdfast.protocol.mirror import Mirrored
from holdfast.protocol.subscriptions import Filter
from holdfast.protocol.versions import Revision
from holdfast.wire.jsonrpc import Request


class Back(Protocol):
    """Answers exchanges. Called in the engine's tasks, concurrently."""

    async def start(self) -> None:
        """Get ready: once, before anything else."""
        ...

    async def stop(self) -> None:
        """Let go: once, after everything else."""
        ...

    def initialize(self, params: dict[str, Any], revision: Revision) -> dict[str, Any]:
        """Return the members of an initialize result besides `protocolVersion`."""
        ...

    @property
    def server_info(self) -> object:
        """The name and version of the server, in a form that can be encoded; None if they are not known."""
        ...

    def mirrored(self, method: str, params: dict[str, Any]) -> tuple[Mirrored, ...]:
        """Return the parameters of a request that its headers must mirror (2026-07-28)."""
        ...

    def is_idempotent(self, request: Request, client: Client | None = None) -> bool:
        """Tell whether running a request again has no further effect; with a client, also whether it may call that."""
        ...

    async def honoured(self, client: SessionlessClient, wanted: Filter) -> Filter:
        """Return what of a listener's filter this client will be told of (2026-07-28)."""
        ...

    async def handle(self, exchange: Exchange) -> bytes:
        """Return the encoded result. Any exception becomes the exchange's error.

        Raises:
            McpError: to answer with that code and message; anything else is masked.
        """
        ...

    async def notify(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """Take a notification of the client's."""
        ...

    # Lifecycle; each is called at most once per transition, in order for one session, and waited for by nobody.

    async def opened(self, session: Session) -> None:
        """The session exists."""
        ...

    async def detached(self, session: Session) -> None:
        """Its last reader broke; its grace has begun."""
        ...

    async def reattached(self, session: Session) -> None:
        """It came back within its grace."""
        ...

    async def closed(self, session: Session, reason: Input) -> None:
        """It is gone."""
        ...
