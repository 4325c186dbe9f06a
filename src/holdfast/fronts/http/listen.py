"""`subscriptions/listen` over HTTP: a response that stays open and carries changes until either side ends it."""

from holdfast.engine.engine import Engine
from holdfast.engine.exchange import Caller
from holdfast.engine.listening import Ended, Listener
from holdfast.engine.sessionless_client import SessionlessClient
from holdfast.fronts.http.connection import Connection, Gone
from holdfast.protocol.sessionless import RequestMeta
from holdfast.wire import sse
from holdfast.wire.jsonrpc import Request


class Listens:
    """Serves listeners, each on its own response."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._times = engine.settings.times

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
            principal.expires if principal is not None else None,
        )
        try:
            await self._stream(listener, connection)
        except Gone:
            return
        finally:
            self._engine.listening.leave(listener)

    async def _stream(self, listener: Listener, connection: Connection) -> None:
        stall = self._times.write_stall
        listener.on_slow = connection.abort
        connection.watch(lambda: listener.stop(Ended.LEFT))
        await connection.start_stream(_events(listener), stall)
        while listener.end is None:
            listener.wake.clear()
            chunk = _events(listener)
            if chunk:
                await connection.write(chunk, stall)
            elif not await listener.wake.wait(self._times.keep_alive):
                await connection.write(sse.KEEP_ALIVE, stall)
        if listener.end is Ended.SLOW:
            connection.abort()
        elif listener.end is not Ended.LEFT:
            await connection.write(_events(listener), stall)
            await connection.end_stream(stall)


def _events(listener: Listener) -> bytes:
    return b"".join(map(sse.event, listener.take()))
