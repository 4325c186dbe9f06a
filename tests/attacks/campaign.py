"""The memory campaign: the largest RSS of a server under each attack, and the latency of a well-behaved client beside it."""

import asyncio
import contextlib
import os
import ssl
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from tests.attacks.account_attacks import ACCOUNT_ATTACKS, tokens
from tests.attacks.beside import TOKEN
from tests.attacks.issuer import AUDIENCE, HONEST, issuer
from tests.attacks.memory_attacks import (
    ATTACKS,
    Attack,
    Target,
    asking_calls,
    awaited_answers,
    cut_streams,
    large_messages,
    unfinished_bodies,
    unfinished_handshakes,
)
from tests.attacks.text_attacks import TEXT_ATTACKS, unread_messages, used_sessions
from tests.http.certificates import write_certificate
from tests.http.serving import Process, limpet_serve

MIB: Final = 2**20
SLACK: Final = 1.2
"""The process may use so many times the figure: authors' functions and the allocator are not in the ledger."""
_PAUSE: Final = 0.05
"""Seconds between two looks at the well-behaved client."""
_ROOT: Final = Path(__file__).parents[2]


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
    failures: Counter[str]
    """The others, by the reason."""
    p99: float
    work: dict[str, float]
    """By kind of connection: the seconds of the processor that one in a hundred of these calls waited for, while the server did other things."""

    @property
    def is_bounded(self) -> bool:
        """True if the process stayed below the figure and its slack."""
        return self.most <= self.figure * SLACK

    def __str__(self) -> str:
        return (
            f"{'ok ' if self.is_bounded else 'RED'} {self.attack:24} figure {self.figure / MIB:5.0f}  rest {self.rest / MIB:4.0f}"
            f"  most {self.most / MIB:6.0f} MiB   beside: {self.served:4} served, {self.failures.total():3} failed, p99 {self.p99 * 1e3:6.0f} ms"
            + "".join(f", {kind} {seconds * 1e3:.0f} of CPU" for kind, seconds in self.work.items())
            + "".join(f"\n    {count} × {reason[:200]}" for reason, count in self.failures.most_common(5))
        )


class Beside:
    """A client with a session of its own, from another address, that calls all the time.

    It is a process of its own (`beside.py`): in the process of the attackers, it would measure their work and not the server's.
    """

    def __init__(self, server: Process, certificate: Path | None) -> None:
        self._words = (
            str(server.port),
            str(server.pid),
            *(() if certificate is None else (str(certificate),)),
        )
        self.seconds: list[float] = []
        self.work: dict[str, list[float]] = {"kept": [], "new": []}
        self.failures: Counter[str] = Counter()

    async def run(self) -> None:
        """Call until it is cancelled."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.attacks.beside",
            *self._words,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, TOKEN: HONEST},
            cwd=_ROOT,
        )
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                kind, seconds, work, *failure = line.decode().strip().split(" ", 3)
                if failure:
                    self.failures[failure[0]] += 1
                else:
                    self.seconds.append(float(seconds))
                    self.work[kind].append(float(work))
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def _p99(values: list[float]) -> float:
    """Return the value that one in a hundred exceeds."""
    ordered = sorted(values)
    return ordered[int(len(ordered) * 0.99)] if ordered else float("inf")


def _status(pid: int, name: str) -> int:
    """Return a number of bytes from the kernel's status of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


class Row(NamedTuple):
    """Attacks at the same time, and how the server is started."""

    attacks: tuple[Attack, ...]
    tls: bool = False
    shared: bool = False
    """Its store is one that processes can share."""
    verified: bool = False
    """It asks an authorization server about tokens."""
    proxied: bool = False
    """It is in front of another one with the tools, at a URL."""
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its attack, or `together`."""
        kinds = f"{' (TLS)' if self.tls else ''}{' (SQLite)' if self.shared else ''}{' (URL)' if self.proxied else ''}"
        return f"{self.attacks[0].__name__ if len(self.attacks) == 1 else 'together'}{kinds}"


@contextlib.contextmanager
def _served(row: Row, options: Sequence[str]) -> Iterator[tuple[Process, Path | None]]:
    own = str(Path(__file__).with_name("memory_server.py")) + ":server"
    with (
        tempfile.TemporaryDirectory() as folder,
        _behind(own) if row.proxied else contextlib.nullcontext(own) as target,
    ):
        certificate = write_certificate(Path(folder) / "certificate.pem") if row.tls else None
        tls = () if certificate is None else ("--tls-cert", str(certificate))
        store = ("--store", f"sqlite:///{folder}/store.db") if row.shared else ()
        with (
            _verifier(Path(folder)) if row.verified else contextlib.nullcontext(()) as verifier,
            limpet_serve(target, *tls, *store, *verifier, *row.options, *options) as process,
        ):
            yield process, certificate


@contextlib.contextmanager
def _behind(target: str) -> Iterator[str]:
    """Serve it with plenty of memory; yield its URL."""
    with limpet_serve(target, "--memory", str(4 * 2**30)) as process:
        yield f"http://127.0.0.1:{process.port}/mcp"


@contextlib.contextmanager
def _verifier(folder: Path) -> Iterator[tuple[str, ...]]:
    """Run an authorization server; yield the options that name it."""
    secret = folder / "secret"
    secret.write_text("secret")
    with issuer() as url:
        yield ("--introspection-url", url, "--introspection-id", "me", "--introspection-key", str(secret), "--public-url", AUDIENCE)  # fmt: skip


async def attacked(
    row: Row, figure: int, *, scale: float = 1.0, options: Sequence[str] | None = None
) -> Result:
    """Run attacks, at the same time, against a server with this figure; return the measured memory and latency."""
    options = ("--memory", str(figure)) if options is None else options
    with _served(row, options) as (process, certificate):
        context = None if certificate is None else ssl.create_default_context(cafile=str(certificate))
        target, beside = Target(process.port, scale, tls=context), Beside(process, certificate)
        rest = _status(process.pid, "VmRSS")
        async with target.closing():
            client = asyncio.create_task(beside.run())
            # It is there before the attackers. Its new connections are not.
            while not beside.seconds:
                await asyncio.sleep(_PAUSE)
            await asyncio.gather(*(attack(target) for attack in row.attacks))
            # The server may still read what was sent: go on until the client beside has been served after that.
            before = len(beside.seconds) + beside.failures.total()
            while len(beside.seconds) + beside.failures.total() < before + 3:
                await asyncio.sleep(_PAUSE)
            most = _status(process.pid, "VmHWM")
            client.cancel()
            await asyncio.wait({client})
    return Result(
        row.name,
        figure,
        rest,
        most,
        len(beside.seconds),
        beside.failures,
        _p99(beside.seconds),
        {kind: _p99(work) for kind, work in beside.work.items()},
    )


def rows() -> list[Row]:
    """Return the rows of the whole campaign."""
    attacks = (*ATTACKS, *TEXT_ATTACKS)
    secured = (unfinished_bodies, unfinished_handshakes)
    shared = (used_sessions, asking_calls, cut_streams)
    proxied = (awaited_answers, unread_messages, large_messages)
    return [
        *(Row((attack,)) for attack in attacks),
        *(Row((attack,), tls=True) for attack in secured),
        *(Row((attack,), shared=True) for attack in shared),
        *(Row((attack,), proxied=True) for attack in proxied),
        *(Row((attack,), options=options) for attack, options in ACCOUNT_ATTACKS),
        Row((tokens,), verified=True),
        Row(attacks),
    ]
