"""`subscriptions/listen` over HTTP: a response that stays open for changes until the client or the server ends it."""

from holdfast.engine.caller import Caller
from holdfast.engine.delivery import deliver
from holdfast.engine.engine import Engine
from holdfast.engine.listening import Listener, ListenerEnd
from holdfast.engine.sessionless_client import SessionlessClient
from holdfast.fronts.http.connection import Connection
from holdfast.fronts.http.request import Gone
from holdfast.fronts.http.response import HttpSink, ResponseForm
from holdfast.protocol.sessionless import RequestMeta
from holdfast.wire.jsonrpc import Request


class Listens:
    """Serves listeners, each on its own response."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._form = ResponseForm("sse", engine.settings.times)

    async def request(
        self, meta: RequestMeta, request: Request, caller: Caller, connection: Connection
    ) -> None:
        """Listen until the client closes the response, its token expires, or the server stops.

        Raises:
            McpError: the request was refused; nothing was written.
        """
        principal = caller.principal
        listener = await self._engine.listening.open(
            SessionlessClient(meta, caller.key, self._engine.settings.limits),
            request,
            caller,
            principal.expires if principal is not None else None,
        )
        try:
            await self._stream(listener, connection)
        except Gone:
            return
        finally:
            self._engine.listening.leave(listener)

    async def _stream(self, listener: Listener, connection: Connection) -> None:
        listener.on_slow = connection.abort
        connection.watch(lambda: listener.stop(ListenerEnd.LEFT))
        response = HttpSink(connection, self._form)
        await deliver(listener, response)
        if listener.end is ListenerEnd.SLOW:
            connection.abort()
        else:
            await response.end()
