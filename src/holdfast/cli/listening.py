"""Where `holdfast serve` listens: an address, a Unix socket, or sockets that another program has opened for it.

An address on the command line or in a file counts first. Without one, the sockets that systemd passes (`LISTEN_FDS`) are
used, and without those the default address.
"""

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator

from holdfast.cli.options import DEFAULT_ADDRESS, ProcessOptions
from holdfast.errors import ConfigError
from holdfast.fronts.http.listener.sockets import UNIX, bind, bind_unix, from_systemd, inherited, tls_context


def address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `:PORT` or `PORT`.

    Raises:
        ConfigError: it has another form.
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the largest port
        raise ConfigError(
            f"--http takes HOST:PORT such as 127.0.0.1:8000, or unix:PATH for a Unix socket, not {text!r}"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def tls_of(process: ProcessOptions) -> ssl.SSLContext | None:
    """Return the TLS context that the options name; None: none is named.

    Raises:
        ConfigError: the files cannot be used.
    """
    if process.tls_cert is not None:
        return tls_context(process.tls_cert, process.tls_key)
    if process.tls_key is not None:
        raise ConfigError("--tls-key needs --tls-cert")
    return None


@contextlib.contextmanager
def listeners(process: ProcessOptions) -> Iterator[list[socket.socket]]:
    """Open the sockets, and close them at the end. The file of a Unix socket is removed.

    Raises:
        ConfigError: the options cannot work.
    """
    with contextlib.ExitStack() as stack:
        opened = _open(process, stack)
        for listener in opened:
            stack.enter_context(listener)
        yield opened


def _open(process: ProcessOptions, stack: contextlib.ExitStack) -> list[socket.socket]:
    if process.fd is not None:
        if process.http is not None:
            raise ConfigError(f"--fd {process.fd} and --http {process.http} are two places: leave one out")
        return [inherited(process.fd)]
    if process.http is None and (passed := from_systemd(os.environ, os.getpid())):
        return passed
    http = process.http or DEFAULT_ADDRESS
    if not http.startswith(UNIX):
        return [bind(*address(http))]
    path = http.removeprefix(UNIX)
    opened = [bind_unix(path)]
    stack.callback(_remove, path)
    return opened


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - a text, as it was given
