"""The server on trial, as `limpet serve --workers` serves it: the configuration is in the environment, and each process has its journal."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from limpet import Server
from tests.chaos.breakages import break_law
from tests.chaos.replica import Journal, ReplicaConfig, build, measure_lag, step_the_clock

_config = msgspec.json.decode(os.environ["CHAOS_WORKER"], type=ReplicaConfig)
_NAME = f"worker{os.getpid()}"
_journal = Journal(Path(_config.journal).with_name(f"{_NAME}.journal"), _NAME)


@contextlib.asynccontextmanager
async def _running(_server: Server) -> AsyncIterator[None]:
    step_the_clock(_journal)
    lag = asyncio.get_running_loop().create_task(measure_lag(_journal))
    _journal.write("ready", value=os.getpid())
    try:
        yield
    finally:
        lag.cancel()
        _journal.write("stopped")


if _config.broken:
    break_law(_config.broken)
server = build(_config, _journal, lifespan=_running)
