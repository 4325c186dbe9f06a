"""The memory campaign: the largest RSS of a server under each attack, and the latency of a well-behaved client beside it."""

import asyncio
import contextlib
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.attacks.memory_attacks import (
    ATTACKS,
    Stream,
    Target,
    call,
    post,
    unfinished_bodies,
    unfinished_handshakes,
)
from tests.http.certificates import write_certificate
from tests.http.serving import Process, holdfast_serve
from tests.messages import initialize, request

MIB: Final = 2**20
SLACK: Final = 1.2
"""The process may use so many times the figure: authors' functions and the allocator are not in the ledger."""
_PAUSE: Final = 0.05
"""Seconds between two calls of the well-behaved client."""
_PATIENCE: Final = 30.0

Attack = Callable[[Target], Awaitable[None]]


class Result(Struct, frozen=True):
    """One row of the report."""

    attack: str
    figure: int
    rest: int
    """Bytes of the process before the attack."""
    most: int
    """Bytes of the process at its largest."""
    served: int
    """Calls of the well-behaved client that were answered."""
    failed: int
    p99: float

    @property
    def is_bounded(self) -> bool:
        """True if the process stayed below the figure and its slack."""
        return self.most <= self.figure * SLACK

    def __str__(self) -> str:
        return (
            f"{'ok ' if self.is_bounded else 'RED'} {self.attack:24} figure {self.figure / MIB:5.0f}  rest {self.rest / MIB:4.0f}"
            f"  most {self.most / MIB:6.0f} MiB   beside: {self.served:4} served, {self.failed:3} failed, p99 {self.p99 * 1e3:6.0f} ms"
        )


class Beside:
    """A client with a session of its own, from another address, that calls all the time."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self._port = port
        self._tls = tls
        self._stream: Stream | None = None
        self.seconds: list[float] = []
        self.failed = 0

    async def run(self) -> None:
        """Call until it is cancelled."""
        session, number = "", 0
        while True:
            number += 1
            begun = time.perf_counter()
            try:
                async with asyncio.timeout(_PATIENCE):
                    stream = self._stream = self._stream or await asyncio.open_connection(
                        "127.0.0.1", self._port, ssl=self._tls
                    )
                    if not session:
                        head, _ = await _exchange(stream, post(request(0, "initialize", initialize())))
                        session = head[head.lower().index("mcp-session-id: ") + 16 :].partition("\r\n")[0]
                    head, body = await _exchange(stream, post(call(number, "echo", text="beside"), session))
                    is_served = b"beside" in body and " 200 " in head
            except (OSError, EOFError, ValueError, TimeoutError):
                is_served = False
            if is_served:
                self.seconds.append(time.perf_counter() - begun)
            else:
                self.failed += 1
                await self.close()
                self._stream = None
            await asyncio.sleep(_PAUSE)

    async def close(self) -> None:
        """Close its connection."""
        if self._stream is not None:
            self._stream[1].transport.abort()
            await asyncio.gather(self._stream[1].wait_closed(), return_exceptions=True)

    @property
    def p99(self) -> float:
        """The latency that one in a hundred calls exceeds, in seconds."""
        ordered = sorted(self.seconds)
        return ordered[int(len(ordered) * 0.99)] if ordered else float("inf")


async def _exchange(
    stream: tuple[asyncio.StreamReader, asyncio.StreamWriter], data: bytes
) -> tuple[str, bytes]:
    reader, writer = stream
    writer.write(data)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
    return head, await reader.readexactly(int(length))


def _status(pid: int, name: str) -> int:
    """Return a number of bytes from the kernel's status of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


@contextlib.contextmanager
def _served(options: Sequence[str], *, tls: bool) -> Iterator[tuple[Process, ssl.SSLContext | None]]:
    target = str(Path(__file__).with_name("memory_server.py")) + ":server"
    if not tls:
        with holdfast_serve(target, *options) as process:
            yield process, None
        return
    with tempfile.TemporaryDirectory() as folder:
        path = write_certificate(Path(folder) / "certificate.pem")
        context = ssl.create_default_context(cafile=str(path))
        with holdfast_serve(target, "--tls-cert", str(path), *options) as process:
            yield process, context


async def attacked(
    attacks: Sequence[Attack],
    figure: int,
    *,
    scale: float = 1.0,
    tls: bool = False,
    options: Sequence[str] | None = None,
) -> Result:
    """Run attacks, at the same time, against a server with this figure; return the measured memory and latency."""
    options = ("--memory", str(figure)) if options is None else options
    name = attacks[0].__name__ if len(attacks) == 1 else "together"
    with _served(options, tls=tls) as (process, context):
        target, beside = Target(process.port, scale, tls=context), Beside(process.port, context)
        rest = _status(process.pid, "VmRSS")
        async with target.closing():
            client = asyncio.create_task(beside.run())
            await asyncio.gather(*(attack(target) for attack in attacks))
            # The server may still read what was sent: go on until the client beside has been served after that.
            before = len(beside.seconds) + beside.failed
            while len(beside.seconds) + beside.failed < before + 3:
                await asyncio.sleep(_PAUSE)
            most = _status(process.pid, "VmHWM")
            client.cancel()
            await asyncio.wait({client})
            await beside.close()
    return Result(
        f"{name}{' (TLS)' if tls else ''}", figure, rest, most, len(beside.seconds), beside.failed, beside.p99
    )


def rows() -> list[tuple[tuple[Attack, ...], bool]]:
    """Return the attacks of the whole campaign, and which of them use TLS."""
    alone = [((attack,), False) for attack in ATTACKS]
    secured = [((attack,), True) for attack in (unfinished_bodies, unfinished_handshakes)]
    return [*alone, *secured, (ATTACKS, False)]
