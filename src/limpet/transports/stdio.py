"""Reserve standard input and output for the protocol: no other code can read or write them."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from limpet.errors import ConfigError

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2


@contextlib.contextmanager
def claimed_stdio() -> Iterator[tuple[int, int]]:
    """Yield the descriptors of the real stdin and stdout, reserved for the caller.

    `print`, writes to descriptor 1 and child processes go to stderr instead. Reading standard input finds it empty.

    Raises:
        ConfigError: one of them was closed when the process started.
    """
    if sys.stdin is None or sys.stdout is None:
        raise ConfigError("stdio cannot be served: standard input or output is closed")
    source, sink = os.dup(STDIN), os.dup(STDOUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    os.dup2(STDERR, STDOUT)
    # Output that is still in Python's buffer is not protocol either: it goes to stderr.
    printed = sys.stdout
    printed.flush()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield source, sink
    finally:
        # A logger may have written to the old object: flush it while it still goes to stderr.
        printed.flush()
        # The copies stay open: a thread may still read or write them.
        os.dup2(source, STDIN)
        os.dup2(sink, STDOUT)
