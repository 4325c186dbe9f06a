"""The ASGI server that runs us (`Server.asgi()`): its requests, the channel of each, and its lifespan events.

ASGI does not report whether a write failed or which bytes the client has taken, and it cannot abort. So this channel
answers "not known" to such questions, and the limits for slow readers apply to a single write.
"""

import asyncio
from collections.abc import Callable

from limpet.engine.engine import Engine
from limpet.engine.group import EngineGroup
from limpet.fronts.http.read.head import RawHeaders
from limpet.fronts.http.read.paths import is_decoded
from limpet.fronts.http.read.request import AT_ONCE, Gone, RawRequest, Receive, Scope, Send


def request_of(scope: Scope) -> RawRequest:
    """Return the head of a request of an ASGI host. Its path is the one below the mount point.

    Hosts decode paths. If they also report the path as it was sent, one in another spelling is not served (`paths`).
    """
    path: str = scope["path"]
    raw: bytes = (scope.get("raw_path") or b"").partition(b"?")[0]
    if b"%" in raw and not is_decoded(raw):
        path = raw.decode("latin-1")
    root: str = scope.get("root_path", "")
    if root and path.startswith(root):
        path = path[len(root) :]
    client = scope.get("client")
    return RawRequest.of(scope["method"], path, list(scope["headers"]), client[0] if client else None)


class AsgiChannel:
    """The channel to a client of an ASGI host."""

    __slots__ = ("_receive", "_scope", "_send", "_watcher")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._watcher: asyncio.Task[None] | None = None

    def take_body(self) -> bytes | None:
        """Leave it to `read`."""
        return None

    async def read(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Gone
        return message.get("body", b""), message.get("more_body", False)

    def answer_ok(self, _body: bytes, *, is_event: bool) -> bool:  # noqa: ARG002
        """Leave it to `send`."""
        return False

    def answer(self, _status: int, _headers: RawHeaders, _body: bytes) -> bool:
        """Leave it to `send`."""
        return False

    async def send(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Send a whole answer.

        After a long one follows an empty part: hosts wait there until the bytes before were written.
        """
        await self.start(status, headers)
        if len(body) > AT_ONCE:
            await self.write(body)
            body = b""
        await self._send({"type": "http.response.body", "body": body})

    async def start(self, status: int, headers: RawHeaders) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, part: bytes) -> None:
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    def write_nowait(self, _part: bytes) -> bool:
        """Leave it to `write`: every write may have to wait."""
        return False

    async def end(self) -> None:
        """Complete the body. Hosts wait here until the bytes before were written."""
        await self._send({"type": "http.response.body", "body": b""})

    def is_flowing(self) -> bool:
        """Every write may have to wait."""
        return False

    def watch(self, on_gone: Callable[[], None]) -> None:
        """Wait for the end of the connection, in a task."""
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch(on_gone))

    async def _watch(self, on_gone: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        on_gone()

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            # Break the reference cycle with the cancelled task, so that reference counting frees the request.
            self._watcher = None

    def is_closing(self) -> bool:
        """ASGI does not report it."""
        return False

    def may_be_gone(self) -> bool:
        """Return whether the end of the connection was seen."""
        return self.is_closing()

    def abort(self) -> None:
        """ASGI cannot do it: the limit for a single write ends the response."""

    def is_taken(self) -> bool | None:
        """ASGI does not report it."""
        return None

    def taken(self) -> int | None:
        """ASGI does not report it."""
        return None

    def asgi(self) -> tuple[Scope, Receive, Send]:
        """Return the ASGI objects of the host."""
        return self._scope, self._receive, self._send


async def lifespan(engine: Engine | EngineGroup, receive: Receive, send: Send) -> None:
    """Start an engine, and close it when the host stops."""
    await receive()
    try:
        await engine.ensure_started()
    except Exception as error:  # noqa: BLE001 - reported to the server, which logs it and stops
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await engine.aclose()
    await send({"type": "lifespan.shutdown.complete"})
