"""stdio: one client, one line a message, as long as the process runs; in both eras, side by side."""

import asyncio
import contextlib
import signal
from collections.abc import Sequence

from limpet.core.lifecycle import SessionInput
from limpet.engine.engine import Engine
from limpet.errors import WireError
from limpet.fronts.countdown import count_down
from limpet.fronts.duplex import Duplex
from limpet.transports.loop_watch import LoopWatch
from limpet.transports.loops import Beside, hangup, run
from limpet.transports.pipes import PipeReader, PipeWriter
from limpet.transports.stdio import claimed_stdio
from limpet.wire.lines import LineBuffer


class StdioFront:
    """Serves an engine over two descriptors until the client closes them or `stop` is called."""

    def __init__(self, engine: Engine, source: int, sink: int) -> None:
        self._engine = engine
        self._reader = PipeReader(source)
        self._writer = PipeWriter(sink)
        self._duplex = Duplex(engine, self._write)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Begin no more calls; running ones may finish."""
        self._stopped.set()

    async def serve(self) -> None:
        """Serve to the end, drain, and close the engine, which serves only this client."""
        await self._engine.ensure_started()
        self._engine.when_failed(self.stop)
        loop = asyncio.get_running_loop()
        receiving, losing = loop.create_task(self._receive()), loop.create_task(self._lose())
        stopping = loop.create_task(self._stopped.wait())
        try:
            await asyncio.wait({receiving, losing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopped.is_set():
                await self._drain(receiving, losing)
        finally:
            for end in (receiving, losing, stopping):
                end.cancel()
        await self._end(SessionInput.SHUTDOWN if self._stopped.is_set() else SessionInput.DELETED)
        if receiving.done() and not receiving.cancelled():
            receiving.result()

    async def _drain(self, *ends: asyncio.Task[None]) -> None:
        """Let calls finish, until the client is gone. Its messages are still taken: a call may wait for an answer."""
        loop = asyncio.get_running_loop()
        draining = loop.create_task(self._engine.drain(hand_over=False))
        shown = loop.create_task(count_down(self._engine))
        await asyncio.wait({draining, *ends}, return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, shown):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _lose(self) -> None:
        """Notice that the client no longer reads: no result can reach it."""
        await self._writer.broke.wait()
        self._duplex.gone.set()

    async def _end(self, reason: SessionInput) -> None:
        left, stall = self._engine.drain_left(), self._engine.settings.times.write_stall
        # Do not wait for a client that has stopped reading.
        patience = asyncio.get_running_loop().call_later(left + stall, self._writer.give_up)
        await self._duplex.hang_up(reason, left)
        # No retry can arrive for a parked call.
        await self._engine.sessionless.end_work("the connection was closed")
        await self._engine.aclose()
        await self._writer.flush(stall)
        patience.cancel()
        self._writer.close()

    async def _receive(self) -> None:
        lines = LineBuffer(self._engine.settings.limits.body)
        while chunk := await self._reader.read():
            await self._take(lines.feed(chunk))
        # The last line of a file may have no line end.
        await self._take(lines.feed(b"\n"))

    async def _take(self, lines: Sequence[bytes | WireError]) -> None:
        for line in lines:
            if isinstance(line, WireError):
                await self._duplex.refuse(line)
            else:
                await self._duplex.take(line)

    async def _write(self, message: bytes) -> None:
        await self._writer.write(message + b"\n")


def run_stdio(engine: Engine, *, beside: Beside | None = None) -> None:
    """Serve standard input and output until the client closes them or a signal stops the process.

    Nothing else uses them.
    """
    with claimed_stdio() as pipes:
        run_pipes(engine, *pipes, beside=beside)


def run_pipes(engine: Engine, source: int, sink: int, *, beside: Beside | None = None) -> None:
    """Do the same with standard input and output that were claimed before."""
    run(_serve(engine, source, sink, beside), threads=engine.settings.limits.threads)


async def _serve(engine: Engine, source: int, sink: int, beside: Beside | None) -> None:
    front = StdioFront(engine, source, sink)
    loop = asyncio.get_running_loop()
    signals = [signal.SIGTERM, signal.SIGINT, *hangup()]

    def stop() -> None:
        """Drain. The next signal ends the process, because the default handler is installed again."""
        front.stop()
        for number in signals:
            loop.remove_signal_handler(number)

    # Windows and threads other than the main one have no such handlers.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        for number in signals:
            loop.add_signal_handler(number, stop)
    with LoopWatch(engine.observer):
        async with beside or contextlib.nullcontext():
            await front.serve()
    if engine.failure is not None:
        raise engine.failure
