"""A back that follows a script: one function for each method, and a list of its events."""

from collections.abc import Awaitable, Callable
from typing import Any

from limpet.core.lifecycle import SessionInput
from limpet.engine.access import Access
from limpet.engine.back import Outside
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.engine.session import Session
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import MethodNotFound
from limpet.protocol.mirrored_headers import MirroredParameter
from limpet.protocol.sessionless import RequestMeta
from limpet.protocol.subscriptions import Filter, Kind
from limpet.stores.base import SessionRecord
from limpet.wire.jsonrpc import Request, encode

Script = Callable[[Exchange], Awaitable[object]]


class ScriptedBack:
    """Answers each method with the function given for it, and writes down every call.

    A script returns anything JSON can carry, or raises. A method without a script is not found.

        back = ScriptedBack()

        @back.on("tools/call")
        async def call(exchange: Exchange) -> object:
            return {"content": []}
    """

    def __init__(self, scripts: dict[str, Script] | None = None, *, has_home: bool = False) -> None:
        self._scripts = dict(scripts or {})
        self.has_home: bool = has_home
        self.access: Access = Access()
        """The scopes that requests need; none until a test sets rules."""
        self.handled: list[Exchange] = []
        """Every exchange that was started, in order."""
        self.notified: list[tuple[str, dict[str, Any]]] = []
        self.events: list[str] = []
        """The events of the back and its sessions: `start`, `opened`, `closed: idle`, … in order."""

    def on(self, method: str) -> Callable[[Script], Script]:
        """Use the decorated function for a method."""

        def register(script: Script) -> Script:
            self._scripts[method] = script
            return script

        return register

    async def start(self, outside: Outside) -> None:
        """Write it down."""
        self.events.append("start")

    async def stop(self) -> None:
        """Write it down."""
        self.events.append("stop")

    async def initialize(self, record: SessionRecord, caller: Caller) -> dict[str, Any]:
        """Declare nothing."""
        return {"capabilities": {}, "serverInfo": self.server_info}

    async def dropped(self, record: SessionRecord) -> None:
        """Forget nothing: it declared nothing."""

    @property
    def server_info(self) -> dict[str, str]:
        """Return a name and a version."""
        return {"name": "scripted", "version": "0"}

    def mirrored(self, request: Request, meta: RequestMeta, caller: Caller) -> tuple[MirroredParameter, ...]:
        """Mirror nothing."""
        return ()

    def lists(self, key: str) -> list[Kind]:
        """Have a list of tools."""
        return ["tools"]

    async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
        """Promise everything."""
        return wanted

    async def handle(self, exchange: Exchange) -> bytes:
        """Follow the method's script."""
        self.handled.append(exchange)
        script = self._scripts.get(exchange.request.method)
        if script is None:
            raise MethodNotFound(exchange.request.method)
        return encode(await script(exchange))

    async def notify(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """Write it down."""
        self.notified.append((method, params))

    @property
    def hears_opened(self) -> bool:
        """Return True."""
        return True

    async def opened(self, session: Session) -> None:
        """Write it down."""
        self.events.append("opened")

    async def detached(self, session: Session) -> None:
        """Write it down."""
        self.events.append("detached")

    async def reattached(self, session: Session) -> None:
        """Write it down."""
        self.events.append("reattached")

    async def closed(self, session: Session, reason: SessionInput) -> None:
        """Write it down, with the reason."""
        self.events.append(f"closed: {reason.value}")

    async def moved(self, record: SessionRecord) -> None:
        """Write it down."""
        self.events.append("moved")

    async def serve(self, record: SessionRecord, caller: Caller) -> None:
        """Write it down."""
        self.events.append("serve")

    async def left(self, key: str) -> None:
        """Write it down."""
        self.events.append("left")
