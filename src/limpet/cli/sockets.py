"""Where `limpet serve` listens: an address, a Unix socket, or sockets that another program has opened for it.

An address on the command line or in a file counts first. Without one, the sockets that systemd passes (`LISTEN_FDS`)
are used, and without those the default address.
"""

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator

from limpet.cli.process_options import DEFAULT_ADDRESS, ProcessOptions
from limpet.errors import ConfigError
from limpet.fronts.http.http1.certificates import tls_context
from limpet.fronts.http.http1.sockets import from_systemd, inherited, open_socket
from limpet.transports.loops import check_http_system


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
def sockets(process: ProcessOptions) -> Iterator[list[socket.socket]]:
    """Open the sockets, and close them at the end. The file of a Unix socket is removed.

    Raises:
        ConfigError: the options cannot work.
    """
    check_http_system()
    with contextlib.ExitStack() as stack:
        passed = _passed(process)
        for sock in passed:
            stack.enter_context(sock)
        yield passed or [stack.enter_context(open_socket(process.http or DEFAULT_ADDRESS))]


def _passed(process: ProcessOptions) -> list[socket.socket]:
    """Return the sockets that another program has opened for this process."""
    if process.fd is None:
        return from_systemd(os.environ, os.getpid()) if process.http is None else []
    if process.http is not None:
        raise ConfigError(f"--fd {process.fd} and --http {process.http} are two places: leave one out")
    return [inherited(process.fd)]
