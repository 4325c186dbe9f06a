"""`python -m tests.attacks.beside PORT PID [CERTIFICATE]`: the well-behaved client beside the attacks.

It has a session and calls all the time until it is killed: on one connection, and every fourth time on a new one. Each call is one line:
`kept` or `new`, by its connection; the seconds; the seconds for which the processor worked for the server in this time; and why the call
failed, if it did.

The second number says what the server does while the call waits. It is the same on a busy machine, where the first one is mostly the
time of other processes.
"""

import asyncio
import os
import ssl
import sys
import time
from typing import Final

from tests.attacks.memory_attacks import Stream, call, post
from tests.messages import initialize, request

TOKEN: Final = "BESIDE_TOKEN"
"""The variable that names its token. A server without a verifier does not read it."""
_PAUSE: Final = 0.05
"""Seconds between two calls."""
_PATIENCE: Final = 30.0
_OWN: Final = ("127.0.0.1", 0)
"""Its own address by name: the kernel gives a connection without one no port that an attacker's address has bound."""
_NEW: Final = 4
"""Of so many calls one opens a connection."""


class Client:
    """The client."""

    def __init__(self, port: int, pid: int, tls: ssl.SSLContext | None) -> None:
        self._port = port
        # The clock that counts the processor's time of a process: man 3 clock_getcpuclockid.
        self._work = ~pid << 3 | 2
        self._tls = tls
        self._stream: Stream | None = None
        self._session = ""
        self._headers = {"Authorization": f"Bearer {os.environ.get(TOKEN, '')}"}

    async def run(self) -> None:
        """Call forever."""
        number = 0
        while True:
            number += 1
            if number % _NEW == 0:
                self._close()
            kind = "new" if self._stream is None else "kept"
            begun, work = time.perf_counter(), time.clock_gettime(self._work)
            failure = await self._failure(number)
            print(
                kind, time.perf_counter() - begun, time.clock_gettime(self._work) - work, failure, flush=True
            )
            await asyncio.sleep(_PAUSE)

    async def _failure(self, number: int) -> str:
        """Make a call; return why it failed, empty if it was served."""
        try:
            async with asyncio.timeout(_PATIENCE):
                stream = self._stream = self._stream or await asyncio.open_connection(
                    "127.0.0.1", self._port, ssl=self._tls, local_addr=_OWN
                )
                if not self._session:
                    head, _ = await _exchange(
                        stream, post(request(0, "initialize", initialize()), headers=self._headers)
                    )
                    self._session = head[head.lower().index("mcp-session-id: ") + 16 :].partition("\r\n")[0]
                head, body = await _exchange(
                    stream, post(call(number, "echo", text="beside"), self._session, self._headers)
                )
                if b"beside" in body and " 200 " in head:
                    return ""
                failure = f"{head.splitlines()[0]} {body[:200]!r}"
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            failure = repr(error)
        self._close()
        return failure

    def _close(self) -> None:
        if self._stream is not None:
            self._stream[1].transport.abort()
            self._stream = None


async def _exchange(stream: Stream, data: bytes) -> tuple[str, bytes]:
    reader, writer = stream
    writer.write(data)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
    # An answer that takes longer than a quarter of a second is a stream.
    return head, await (reader.readexactly(int(length)) if length else reader.readuntil(b"\r\n0\r\n\r\n"))


if __name__ == "__main__":
    certificate = sys.argv[3] if len(sys.argv) > 3 else None
    context = None if certificate is None else ssl.create_default_context(cafile=certificate)
    asyncio.run(Client(int(sys.argv[1]), int(sys.argv[2]), context).run())
