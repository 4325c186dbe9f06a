"""Runs the rows against a server: the probes of `limpet check`, the trials, and a kill of the process."""

import asyncio
import subprocess
import tempfile
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from limpet.checking.ground import ProbeFailed
from limpet.checking.lane import Lane, Question
from limpet.checking.peer import Peer as Connection
from limpet.errors import LimpetError
from limpet.testing import check
from tools.comparison.peers import START_SECONDS, Peer, started, wait_until_connected
from tools.comparison.rows import ROWS
from tools.comparison.trials import TRIALS, Cell, judged, session
from tools.ports import free_port

KILLED: Final = "killed-process"
SPEAKS_NOT: Final = "it does not speak 2026-07-28"


async def collected(peer: Peer, *, only: Collection[str] = (), timeout: float = 4.0) -> dict[str, Cell]:
    """Return the cells of a server by row; `only` chooses rows."""
    keys = [row.key for row in ROWS if not only or row.key in only]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store, port = Path(folder) / "sessions.db", free_port()
        url = f"http://127.0.0.1:{port}/mcp"
        process = stack.enter_context(started(peer, port, store))
        await _ready(port, process, url)
        cells: dict[str, Cell] = {}
        connection = Connection(url, {}, timeout)
        try:
            report = await check(
                url, timeout=timeout, only=["handshake", *(key for key in keys if _is_probe(key))]
            )
            for key, trial in TRIALS.items():
                if key in keys:
                    cells[key] = await judged(trial(connection))
                    connection.release()
            cells |= {row.probe: Cell(row.verdict, row.happened) for row in report.rows}
            if "ask-without-session" in keys and "2026-07-28" not in report.versions:
                cells["ask-without-session"] = Cell("not applicable", SPEAKS_NOT)
            if KILLED in keys:
                lane = await session(connection)
                process.kill()
                await asyncio.to_thread(process.wait)
                fresh = stack.enter_context(started(peer, port, store))
                await _ready(port, fresh, url)
                cells[KILLED] = await judged(_continued(lane, timeout))
        finally:
            await connection.aclose()
    return {key: cells[key] for key in keys}


async def _ready(port: int, process: "subprocess.Popen[bytes]", url: str) -> None:
    """Return when the server answers: it may still import modules when it listens."""
    await asyncio.to_thread(wait_until_connected, port, process)
    connection = Connection(url, {}, START_SECONDS)
    try:
        await (await session(connection)).delete()
    finally:
        await connection.aclose()


def _is_probe(key: str) -> bool:
    return key not in TRIALS and key != KILLED


async def _continued(lane: Lane, timeout: float) -> str:
    """Use a session at the process that was started after the first one was killed."""
    connection = Connection(lane.peer.url, {}, timeout)
    lane.peer = connection
    try:
        outcome = await lane.ask(Question("ping", {}, ""))
    except LimpetError as error:
        raise ProbeFailed(str(error)) from error
    finally:
        await connection.aclose()
    if outcome.result is None:
        raise ProbeFailed(f"a request of the session got {outcome}")
    return "the new process answered the session"
