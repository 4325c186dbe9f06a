"""Standard input and output, taken away from everybody else while they carry the protocol."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from holdfast.errors import ConfigError

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2


@contextlib.contextmanager
def claimed_stdio() -> Iterator[tuple[int, int]]:
    """Give descriptors that lead to the real stdin and stdout, and to nothing else meanwhile.

    `print`, writes to descriptor 1 and child processes reach stderr instead; whoever reads
    standard input finds it empty.
    """
    try:
        source, sink = os.dup(STDIN), os.dup(STDOUT)
    except OSError as error:
        raise ConfigError(f"stdio cannot be served: standard input or output is closed ({error})") from None
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    os.dup2(STDERR, STDOUT)
    # What was printed before and is still in Python's buffer is no message either: it goes to stderr.
    printed = sys.stdout
    printed.flush()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield source, sink
    finally:
        # A logger may have kept the old object and written to it: that is flushed while it leads to stderr.
        printed.flush()
        # The copies stay open: a thread may still be inside a read or a write on them.
        os.dup2(source, STDIN)
        os.dup2(sink, STDOUT)
