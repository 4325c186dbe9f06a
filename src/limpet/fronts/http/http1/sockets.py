"""Listening sockets: addresses, Unix sockets, and descriptors that another program opened."""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from typing import Final

from limpet.config import KIB
from limpet.errors import ConfigError

SEND_BUFFER: Final = 256 * KIB
"""Bytes that the kernel may hold for one client that does not read; the default grows to megabytes."""
BACKLOG: Final = 2048
UNIX: Final = "unix:"
"""The beginning of an address that is the path of a Unix socket."""
HTTP: Final = "--http"
"""The option that names the address of the MCP endpoint."""
FIRST_INHERITED: Final = 3
"""The first descriptor that systemd passes."""


def address(text: str, option: str = HTTP) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `:PORT` or `PORT`. `option` is the option with this text, for errors.

    Raises:
        ConfigError: it has another form.
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the largest port
        raise ConfigError(
            f"{option} takes HOST:PORT such as 127.0.0.1:8000, or unix:PATH for a Unix socket, not {text!r}"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


@contextlib.contextmanager
def open_socket(text: str, option: str = HTTP) -> Iterator[socket.socket]:
    """Listen at `HOST:PORT` or `unix:PATH` while the block runs. The file of a Unix socket is removed at the end.

    Raises:
        ConfigError: the text has another form, or the address cannot be used.
    """
    if not text.startswith(UNIX):
        with bind(*address(text, option), option) as sock:
            yield sock
        return
    path = text.removeprefix(UNIX)
    sock = bind_unix(path)
    try:
        with sock:
            yield sock
    finally:
        # A server that has started in the meantime may listen at the same path.
        with contextlib.suppress(OSError):
            _remove_abandoned(path)


def bind(host: str, port: int, option: str = HTTP) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: the address is in use, unknown or not of this machine.
    """
    name = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        sock = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}; choose another with {option} HOST:PORT (port 0 takes a free one)"
        ) from None
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return sock


def is_unix(sock: socket.socket) -> bool:
    """True for a Unix socket. Some systems have none."""
    return sock.family == getattr(socket, "AF_UNIX", None)


def bind_unix(path: str) -> socket.socket:
    """Return a listening Unix socket. A socket file that no program listens on any more is replaced.

    Raises:
        ConfigError: the path cannot be used, or another program listens there.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        _remove_abandoned(path)
        sock.bind(path)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on {UNIX}{path}: {os.strerror(error.errno or 0)}") from None
    return sock


def _remove_abandoned(path: str) -> None:
    """Remove a socket file that no program listens on. Any other file stays."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116 - one call, no Path is needed
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)  # noqa: PTH108


def inherited(descriptor: int) -> socket.socket:
    """Return the listening socket that another program has opened and passed to this process.

    Raises:
        ConfigError: the descriptor is no listening socket.
    """
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        raise ConfigError(f"descriptor {descriptor} is no socket: {os.strerror(error.errno or 0)}") from None
    if sock.type != socket.SOCK_STREAM or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.detach()
        raise ConfigError(f"descriptor {descriptor} is no socket that listens for connections")
    if not is_unix(sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return sock


def from_systemd(environment: Mapping[str, str], pid: int) -> list[socket.socket]:
    """Return the sockets that systemd passes to this process by `LISTEN_FDS`; none: it passes none.

    Raises:
        ConfigError: a descriptor is no listening socket.
    """
    count = environment.get("LISTEN_FDS", "")
    if environment.get("LISTEN_PID") != str(pid) or not count.isdecimal():
        return []
    return [inherited(FIRST_INHERITED + number) for number in range(int(count))]


def host_of(sock: socket.socket) -> str:
    """Return the address that a socket is bound to; a Unix socket is reached from this machine only."""
    name = sock.getsockname()
    return str(name[0]) if isinstance(name, tuple) else "localhost"


def url_of(sock: socket.socket, path: str, *, tls: bool = False) -> str:
    """Return the URL of the endpoint; for a Unix socket, the socket and the path."""
    name = sock.getsockname()
    if not isinstance(name, tuple):
        return f"{UNIX}{name}:{path}"
    host, port = name[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}{path}"
