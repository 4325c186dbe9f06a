"""Processor time, memory and files of this process, from /proc. Where there is no /proc, there are no such samples."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast import __version__
from holdfast.ops.metrics import families
from holdfast.ops.metrics.samples import Sample, number

_PROC: Final = Path("/proc")
_AFTER_NAME: Final = 3
"""The number of the first field of `stat` after the name of the program, which may contain spaces."""
_USER, _SYSTEM, _STARTED, _VIRTUAL, _RESIDENT = 14, 15, 22, 23, 24


def samples_of_process() -> Iterator[Sample]:
    """Yield the samples of this process."""
    yield number(families.PROCESSES, 1)
    yield number(families.BUILD, 1, __version__, platform.python_version())
    try:
        yield from _read(_PROC)
    except (OSError, ValueError, IndexError):
        return


def _read(proc: Path) -> list[Sample]:
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    fields = (proc / "self/stat").read_text(errors="replace").rpartition(")")[2].split()
    stat = {
        number: int(fields[number - _AFTER_NAME])
        for number in (_USER, _SYSTEM, _STARTED, _VIRTUAL, _RESIDENT)
    }
    booted = next(
        int(line.split()[1]) for line in (proc / "stat").read_text().splitlines() if line.startswith("btime ")
    )
    limits = (proc / "self/limits").read_text().splitlines()
    files = next((line.split()[3] for line in limits if line.startswith("Max open files")), "")
    found = [
        number(families.CPU, (stat[_USER] + stat[_SYSTEM]) / ticks),
        number(families.RESIDENT, stat[_RESIDENT] * page),
        number(families.VIRTUAL, stat[_VIRTUAL]),
        number(families.START_TIME, booted + stat[_STARTED] / ticks),
        number(families.OPEN_FDS, len(list((proc / "self/fd").iterdir()))),
    ]
    return [*found, number(families.MAX_FDS, int(files))] if files.isdecimal() else found
