"""`python -m tests.attacks.beside PORT [CERTIFICATE]`: the well-behaved client beside the attacks.

It has a session and one connection, and calls all the time until it is killed. Each call is one line: the seconds, and why it failed, if it did.
"""

import asyncio
import ssl
import sys
import time
from typing import Final

from tests.attacks.memory_attacks import Stream, call, post
from tests.messages import initialize, request

_PAUSE: Final = 0.05
"""Seconds between two calls."""
_PATIENCE: Final = 30.0


class Client:
    """The client."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self._port = port
        self._tls = tls
        self._stream: Stream | None = None
        self._session = ""

    async def run(self) -> None:
        """Call forever."""
        number = 0
        while True:
            number += 1
            begun = time.perf_counter()
            failure = await self._failure(number)
            print(time.perf_counter() - begun, failure, flush=True)
            await asyncio.sleep(_PAUSE)

    async def _failure(self, number: int) -> str:
        """Make a call; return why it failed, empty if it was served."""
        try:
            async with asyncio.timeout(_PATIENCE):
                stream = self._stream = self._stream or await asyncio.open_connection(
                    "127.0.0.1", self._port, ssl=self._tls
                )
                if not self._session:
                    head, _ = await _exchange(stream, post(request(0, "initialize", initialize())))
                    self._session = head[head.lower().index("mcp-session-id: ") + 16 :].partition("\r\n")[0]
                head, body = await _exchange(stream, post(call(number, "echo", text="beside"), self._session))
                if b"beside" in body and " 200 " in head:
                    return ""
                failure = f"{head.splitlines()[0]} {body[:200]!r}"
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            failure = repr(error)
        if self._stream is not None:
            self._stream[1].transport.abort()
            self._stream = None
        return failure


async def _exchange(stream: Stream, data: bytes) -> tuple[str, bytes]:
    reader, writer = stream
    writer.write(data)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
    return head, await reader.readexactly(int(length))


if __name__ == "__main__":
    certificate = sys.argv[2] if len(sys.argv) > 2 else None
    context = None if certificate is None else ssl.create_default_context(cafile=certificate)
    asyncio.run(Client(int(sys.argv[1]), context).run())
