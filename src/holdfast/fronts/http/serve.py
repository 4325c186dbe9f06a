"""`holdfast serve --http` without the command line: checks, a socket, uvicorn."""

import contextlib
import ipaddress
import os
import socket
from collections.abc import Callable
from typing import Final

from holdfast.config import KIB, LOOPBACK_HOSTS
from holdfast.errors import ConfigError
from holdfast.fronts.http.front import HttpFront
from holdfast.fronts.http.router import Router
from holdfast.transports.loops import run

SEND_BUFFER: Final = 256 * KIB
"""Bytes that the kernel may hold for one client that does not read; the default grows to megabytes."""
BACKLOG: Final = 2048

Ready = Callable[[str], None]
"""Called with the URL of the endpoint, or of the root if there are several, when connections are accepted."""


def run_http(
    front: HttpFront | Router, host: str = "127.0.0.1", port: int = 8000, *, ready: Ready | None = None
) -> None:
    """Serve until SIGINT or SIGTERM, then drain.

    Raises:
        ConfigError: the address cannot be bound, or other machines could call without a verifier.
        StoreUnavailable: the store cannot be used at the start.
    """
    check_exposure(front, host)
    with contextlib.suppress(KeyboardInterrupt), bind(host, port) as listener:
        run(serve(front, listener, ready=ready), threads=front.engine.settings.limits.threads)


async def serve(
    front: HttpFront | Router, listener: socket.socket, *, ready: Ready | None = None, siblings: bool = False
) -> None:
    """Serve on a bound socket until a signal stops it; with `siblings`, other processes accept from it too.

    Raises:
        StoreUnavailable: the store cannot be used at the start.
    """
    from holdfast.fronts.http.service import Service  # noqa: PLC0415 - imports uvicorn

    try:
        await front.engine.ensure_started()
    except BaseException:
        await front.engine.store.aclose()
        raise
    service = Service(front, siblings=siblings)
    if ready is not None:
        ready(url_of(listener, front.path))
    await service.serve([listener])


def check_exposure(front: HttpFront | Router, host: str, name: str = "the server") -> None:
    """Refuse to serve other machines anonymously, or under any host name, unless that was asked for."""
    if isinstance(front, Router):
        for called, one in front.fronts.items():
            check_exposure(one, host, called)
        return
    if is_loopback(host):
        return
    settings = front.settings
    if not front.is_verified and not settings.allow_anonymous:
        raise ConfigError(
            f"{host} can be reached from other machines, and {name} has no verifier: give it one, or let everyone "
            "call with allow_anonymous=True (--allow-anonymous)"
        )
    if tuple(settings.allowed_hosts) == LOOPBACK_HOSTS:
        raise ConfigError(
            f"{host} can be reached from other machines: name the hosts by which clients call {name} with allowed_hosts "
            "(--allow-host mcp.example.com, or --allow-host '*' behind a proxy that checks it)"
        )


def is_loopback(host: str) -> bool:
    """True if an address to bind can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: the address is taken, unknown or not ours.
    """
    name = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}; choose another with --http HOST:PORT (port 0 takes a free one)"
        ) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return listener


def url_of(listener: socket.socket, path: str) -> str:
    """Return the URL of the endpoint."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
