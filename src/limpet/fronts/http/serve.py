"""`limpet serve --http` without the command line: checks, sockets, the service."""

import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Final

from limpet.config import LOOPBACK_HOSTS, Limits
from limpet.errors import Exposed
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.http1.sockets import bind, host_of, url_of
from limpet.fronts.http.router import Router
from limpet.transports.loop_watch import LoopWatch
from limpet.transports.loops import Beside, Orders, run

# The descriptors that this process may open (`RLIMIT_NOFILE`), and the connections that fit into them.
#
# A process that has no descriptor left cannot accept a connection, not even to refuse it, and its store and its files
# fail too. So the limit is raised at the start, and connections are limited to a number that leaves a reserve.

LOGGER: Final = logging.getLogger("limpet")

RESERVE: Final = 512
"""Descriptors for other uses: the store, servers behind, files, the admin surface, connections that are being
refused."""
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


Ready = Callable[[str], None]
"""Called with the URL of the endpoint, or of the root if there are several, when connections are accepted."""


def run_http(
    front: HttpFront | Router,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    ready: Ready | None = None,
    beside: Beside | None = None,
) -> None:
    """Serve at an address until SIGINT or SIGTERM, then drain.

    Raises:
        ConfigError: the address cannot be bound, or other machines could call without a verifier.
        StoreUnavailable: the store cannot be used at the start.
        LifespanEnded: the lifespan of a server ended, and the drain after it is over.
    """
    check_exposure(front, host)
    with bind(host, port) as sock:
        run_on(front, sock, ready=ready, beside=beside)


def run_on(
    front: HttpFront | Router,
    *sockets: socket.socket,
    ready: Ready | None = None,
    tls: ssl.SSLContext | None = None,
    beside: Beside | None = None,
) -> None:
    """Serve on bound sockets until SIGINT or SIGTERM, then drain.

    Raises:
        ConfigError: other machines could call without a verifier.
        StoreUnavailable: the store cannot be used at the start.
        LifespanEnded: the lifespan of a server ended, and the drain after it is over.
    """
    check_sockets(front, sockets)
    with contextlib.suppress(KeyboardInterrupt):
        run(
            serve(front, *sockets, ready=ready, tls=tls, beside=beside),
            threads=front.engine.settings.limits.threads,
        )


async def serve(
    front: HttpFront | Router,
    *sockets: socket.socket,
    ready: Ready | None = None,
    orders: Orders | None = None,
    processes: int = 1,
    tls: ssl.SSLContext | None = None,
    beside: Beside | None = None,
) -> None:
    """Serve on bound sockets until a signal stops it. A worker gets the `orders` of its parent.

    `processes`: how many workers share the figure of memory.

    Raises:
        StoreUnavailable: the store cannot be used at the start.
        LifespanEnded: the lifespan of a server ended, and the drain after it is over.
    """
    from limpet.fronts.http.http1.start_and_stop import Service  # noqa: PLC0415 - imports httptools

    await front.engine.ensure_started()
    connections = connections_that_fit(front.engine.settings.limits.connections)
    service = Service(front, orders=orders, processes=processes, tls=tls, connections=connections)
    with LoopWatch(front.engine.observer):
        async with beside or contextlib.nullcontext():
            if ready is not None:
                ready(url_of(sockets[0], front.path, tls=tls is not None))
            await service.serve(sockets)
    if (failure := front.engine.failure) is not None:
        raise failure


def check_sockets(front: HttpFront | Router, sockets: Iterable[socket.socket]) -> None:
    """Check each bound socket with `check_exposure`.

    Raises:
        Exposed: the settings do not allow it. The error has the port.
    """
    for sock in sockets:
        try:
            check_exposure(front, host_of(sock))
        except Exposed as error:
            error.port = sock.getsockname()[1]
            raise


def check_exposure(front: HttpFront | Router, host: str, name: str = "the server") -> None:
    """Refuse to serve other machines anonymously, or under any host name, unless the settings allow it.

    Raises:
        Exposed: they do not.
    """
    if isinstance(front, Router):
        for called, one in front.fronts.items():
            check_exposure(one, host, called)
        return
    if is_loopback(host):
        return
    lacks_verifier = not front.is_verified and not front.settings.allow_anonymous
    lacks_host = front.settings.hosts == LOOPBACK_HOSTS
    if lacks_verifier or lacks_host:
        # All anonymous clients are one principal, and would share its state.
        anonymous = front.engine.settings.state != "principal"
        raise Exposed(host, name, lacks_verifier=lacks_verifier, lacks_host=lacks_host, anonymous=anonymous)


def is_loopback(host: str) -> bool:
    """True if an address to bind can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
