"""The memory of this process and of its machine."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

from limpet.config import MIB

LEAST: Final = 256 * MIB
"""The figure of a process on a small machine."""
_CONTAINER: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where Linux says how much memory a container has: the second and the first version of control groups."""
_UNKNOWN: Final = 4 * 1024 * MIB
"""What we assume where the system does not say how much memory it has."""
_TRIM: Final = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "malloc_trim", None)
"""A function of the GNU C library; other libraries have none."""


def at_rest() -> int:
    """Return the bytes of memory that this process has now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        import resource  # noqa: PLC0415 - not on Windows, which has no HTTP server

        # The most that it had, in KiB; in bytes on macOS.
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGESIZE")


def give_back() -> None:
    """Give free memory back to the system that its allocator keeps for later. Takes some milliseconds for 100 MiB."""
    if _TRIM is not None:
        _TRIM(0)


def usual_figure() -> int:
    """Return the memory for a server whose operator has set no figure: a part of the container's, or of the machine's.

    Of a container, which is for this server, three quarters: with the slack of a fifth, nine tenths are used. Of a
    machine, which has other work, a quarter.
    """
    machine = _machine()
    container = min(_limits(), default=machine)
    return max(LEAST, container * 3 // 4 if container < machine else machine // 4)


def _machine() -> int:
    """Return the bytes of memory of the machine. Windows has no such function."""
    if not hasattr(os, "sysconf"):
        return _UNKNOWN
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")


def _limits() -> list[int]:
    found = []
    for path in _CONTAINER:
        try:
            found.append(int(path.read_text()))
        except (OSError, ValueError):
            # There is no such group, or it has no limit.
            continue
    return found
