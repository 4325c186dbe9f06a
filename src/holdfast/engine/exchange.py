"""One client request being answered: what a back is given to answer it with."""

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from holdfast.auth import Principal
from holdfast.engine.asks import ask
from holdfast.engine.outlet import Outlet, StreamOutlet
from holdfast.engine.session import Session
from holdfast.errors import NoBackChannel
from holdfast.stores.base import Claim, Store
from holdfast.wire.jsonrpc import Request, notification_message


class Caller(Struct, frozen=True):
    """Who sends a request: the key its sessions are bound to, who that is, and the request's headers."""

    key: str
    principal: Principal | None = None
    headers: Mapping[str, str] = {}


class Exchange:
    """Starts at most once, ends with exactly one terminal message, on its own stream."""

    __slots__ = ("busy", "caller", "claim", "deadline", "fence", "outlet", "request", "session",
                 "settled", "store", "task")  # fmt: skip

    def __init__(
        self,
        store: Store,
        session: Session,
        request: Request,
        claim: Claim,
        fence: int,
        outlet: Outlet,
        caller: Caller,
    ) -> None:
        self.store = store
        self.session = session
        self.request = request
        self.claim = claim
        self.fence = fence
        self.outlet = outlet
        self.caller = caller
        self.settled = False
        self.task: asyncio.Task[None] | None = None
        self.deadline: asyncio.TimerHandle | None = None
        """While it waits for a slot: when it is refused as busy."""
        self.busy = False
        """It was refused because no slot became free."""

    def __repr__(self) -> str:
        state = "settled" if self.settled else "running" if self.task else "queued"
        return f"<Exchange {self.request.method} {state} in {self.session.name}>"

    @property
    def principal(self) -> Principal | None:
        """Who sent this request; None for an anonymous client."""
        return self.caller.principal

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers, by lower-case name; empty where there are none."""
        return self.caller.headers

    @property
    def stream(self) -> StreamOutlet:
        """The exchange's stream; only exchanges of the HTTP front have one."""
        if not isinstance(self.outlet, StreamOutlet):
            raise TypeError("this exchange writes to a connection, not to a stream")
        return self.outlet

    async def notify(self, method: str, params: object = None) -> None:
        """Send a notification that belongs to this exchange. Dropped once it is settled."""
        if not self.settled:
            await self.outlet.send(notification_message(method, params))

    async def ask(self, method: str, params: object, *, timeout: float | None = None) -> Any:
        """Send the client a request within this exchange and wait for its result.

        Raises:
            AskRefused, AskTimeout, BackPressureError, NoBackChannel: as their names say.
        """
        refusal = self.outlet.refuse_asks()
        if refusal is not None:
            raise NoBackChannel(f"{method} cannot reach the client: {refusal}")
        return await ask(
            self.store, self.session, self.claim.stream, self.outlet.send, method, params, timeout
        )

    async def close_stream(self) -> None:
        """End this exchange's connection now; the client comes back for the rest. Nothing where that is not allowed."""
        if (
            isinstance(self.outlet, StreamOutlet)
            and self.session.revision.early_close
            and self.outlet.streams
        ):
            await self.outlet.open()
            self.outlet.release_reader()
