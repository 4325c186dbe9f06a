"""The calls that a stop waits for, shown at the terminal: their names, the time left, and how to end at once."""

import asyncio
import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Final, TextIO

from limpet.engine.engine import Engine
from limpet.engine.group import EngineGroup

_TICK: Final = 1.0
_PLAIN_EVERY: Final = 5
"""Ticks between two lines, on a terminal that cannot overwrite a line."""
_NAMES: Final = 3
_NAME_LENGTH: Final = 40
_OVERWRITE: Final = "\r\x1b[2K"


def waiting(calls: Iterable[str], seconds: float) -> str:
    """Return the sentence that names the calls. Names come from clients: only plain characters are shown."""
    counted = Counter("".join(filter(_is_plain, call))[:_NAME_LENGTH] for call in calls)
    names = [name if count == 1 else f"{name} ×{count}" for name, count in counted.most_common(_NAMES)]
    if len(counted) > _NAMES:
        names.append("…")
    total = counted.total()
    one = total == 1
    return (
        f"Stopping: {total} {'call is' if one else 'calls are'} running ({', '.join(names)}); "
        f"waiting up to {seconds:.0f} s. Press Ctrl+C again to end {'it' if one else 'them'} now."
    )


def _is_plain(character: str) -> bool:
    return character.isalnum() or character in "_-./"


async def count_down(
    engine: Engine | EngineGroup, output: TextIO | None = None, *, alone: bool = True
) -> None:
    """Show the calls that a stop waits for, until all have ended. `alone`: no other process writes to the terminal."""
    # A terminal that was closed takes nothing, and must not end the stop.
    with contextlib.suppress(OSError):
        await _show(engine, output or sys.stderr, alone=alone)


async def _show(engine: Engine | EngineGroup, output: TextIO, *, alone: bool) -> None:
    overwrites = alone and output.isatty()
    tick = 0
    try:
        while calls := engine.in_flight():
            seconds = engine.drain_left()
            if overwrites:
                output.write(_OVERWRITE + waiting(calls, seconds))
            elif tick % _PLAIN_EVERY == 0:
                output.write(f"{'' if alone else f'worker {os.getpid()}: '}{waiting(calls, seconds)}\n")
            output.flush()
            tick += 1
            await asyncio.sleep(_TICK)
    finally:
        if overwrites and tick:
            output.write("\n")
            output.flush()
