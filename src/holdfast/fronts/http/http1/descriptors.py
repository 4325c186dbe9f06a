"""The descriptors that this process may open (`RLIMIT_NOFILE`), and the connections that fit into them.

A process that has no descriptor left cannot accept a connection, not even to refuse it, and its store and its files fail
too. So the limit is raised at the start, and connections are limited to a number that leaves a reserve.
"""

import logging
from typing import Final

from holdfast.config import Limits

LOGGER: Final = logging.getLogger("holdfast")

RESERVE: Final = 512
"""Descriptors for other uses: the store, servers behind, files, the admin surface, connections that are being refused."""
_MANY: Final = 1_000
"""If so many connections fit, a process with the default limit, which its operator did not choose, needs no warning."""
_AMPLE: Final = 65_536
"""The soft limit that is enough for every use. Child processes inherit it, and some close every descriptor up to it."""


def connections_that_fit(connections: int) -> int:
    """Return how many of these connections this process can have open. A soft limit that is too low is raised first.

    If not all of them fit, a warning says the number; not for the default limit, if many fit.
    """
    try:
        import resource  # noqa: PLC0415 - missing on Windows, which has no such limit
    except ImportError:
        return connections
    needed = connections + RESERVE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    # A limit without an end is refused by systems that have a largest number.
    raised = needed if hard == resource.RLIM_INFINITY else min(hard, max(needed, _AMPLE))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError):
        raised = soft
    if raised >= needed:
        return connections
    fitting = max(raised - RESERVE, raised // 2)
    if connections == Limits().connections and fitting >= _MANY:
        return fitting
    LOGGER.warning(
        "this process serves %d connections at once, not %d (Limits.connections): it may open only %d descriptors; "
        "raise the hard limit (ulimit -Hn, LimitNOFILE= of systemd) to %d",
        fitting, connections, raised, needed,
    )  # fmt: skip
    return fitting
