"""The way from a replica to its database, which can be cut, held, made deaf or led elsewhere: `python -m tests.chaos.line`.

It is a process of its own, so that the clients of a trial do not slow it down. Each line of its input is a command.
"""

import asyncio
import contextlib
import subprocess
import sys
from typing import Final

CHUNK: Final = 65_536
OPEN: Final = "open"
PASS: Final = "pass"
HOLD: Final = "hold"
"""Nothing passes, in either direction, and no connection ends: a partition."""
DEAF: Final = "deaf"
"""Commands reach the database, and its replies are lost."""
CUT: Final = "cut"
"""All connections end; new ones pass."""


class _Way:
    """All connections of one replica to one address."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.mode = PASS
        self.changed = asyncio.Event()
        self.open: set[asyncio.StreamWriter] = set()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passes()
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self.open |= {writer, back}
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await asyncio.gather(
                self._pipe(reader, back, replies=False), self._pipe(there, writer, replies=True)
            )
        self.open -= {writer, back}
        writer.transport.abort()
        back.transport.abort()

    async def _passes(self) -> None:
        while self.mode == HOLD:
            self.changed.clear()
            await self.changed.wait()

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, replies: bool) -> None:
        while data := await source.read(CHUNK):
            await self._passes()
            if not (replies and self.mode == DEAF):
                sink.write(data)
                await sink.drain()
        raise ConnectionResetError

    def tell(self, mode: str) -> None:
        if mode == CUT:
            for writer in list(self.open):
                writer.transport.abort()
        self.mode = PASS if mode == CUT else mode
        self.changed.set()


async def main() -> None:
    """Obey until the input ends."""
    ways: dict[str, _Way] = {}
    commands = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(commands)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await commands.readline():
        what, name, *rest = line.decode().split()
        match what:
            case "open":
                ways[name] = _Way(int(rest[0]))
                server = await asyncio.start_server(ways[name].connect, "127.0.0.1", 0)
                print(server.sockets[0].getsockname()[1], flush=True)
            case "lead":
                for way in ways.values():
                    way.target = int(name) if way.target == int(rest[0]) else way.target
            case mode:
                for each, way in ways.items():
                    if each.partition(":")[0] == name:
                        way.tell(mode)


class Line:
    """The process, as the fleet uses it."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def open(self, replica: str, target: int) -> int:
        """Make a way for a replica to a port of the database; return the port that leads there."""
        self.tell("open", f"{replica}:{target}", str(target))
        assert self._popen.stdout is not None
        return int(self._popen.stdout.readline())

    def tell(self, *words: str) -> None:
        """Send a command: a mode and a replica, or `lead` with the new and the old target."""
        assert self._popen.stdin is not None
        print(*words, file=self._popen.stdin, flush=True)

    def end(self) -> None:
        """End it."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            pipe.close()


if __name__ == "__main__":
    asyncio.run(main())
