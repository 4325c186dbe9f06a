"""The address of the admin surface: its listening socket, its token, and the rules under which they are accepted.

A person with the token can read the names of tools and clients, close sessions and cancel calls. So an address that
other machines can reach needs a token and host names that the operator has chosen, and a new token is made only if a
terminal can show it.
"""

import contextlib
import os
import re
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Final

from msgspec import Struct

from limpet.config import LOOPBACK_HOSTS, AdminSettings, Limits
from limpet.errors import ConfigError
from limpet.fronts.http.http1.accept import Acceptor
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from limpet.fronts.http.http1.sockets import host_of, is_unix, open_socket, url_of
from limpet.fronts.http.serve import is_loopback
from limpet.ops.admin.surface import FleetSource, Surface
from limpet.ports import Clock, Observer, SystemRandom

OPTION: Final = "--admin"
VARIABLE: Final = "LIMPET_ADMIN_TOKEN"
LIMITS: Final = Limits(connections=64)
"""The limits of connections to the surface. Operators are few."""
_STALL: Final = 30.0
"""Seconds after which an operator's connection that takes no bytes is dropped."""
_GOODBYE: Final = 1.0
"""Seconds to write the last answers."""
_TOKEN_BYTES: Final = 24
_TOKEN: Final = re.compile(r"[!-~]{16,512}")
_GIVE_TOKEN: Final = f"write a token into a file and give --admin-token-file FILE, or set {VARIABLE}; the same one for all replicas"


class AdminAddress(Struct, frozen=True):
    """The open socket of a surface, and its token. `serving` answers requests."""

    sock: socket.socket
    token: str
    is_new: bool
    """The token was made for this process: it must be shown."""
    hosts: tuple[str, ...]
    tls: ssl.SSLContext | None

    @property
    def url(self) -> str:
        """The URL of the dashboard; for a Unix socket, the socket and the path."""
        return url_of(self.sock, "/", tls=self.tls is not None)

    def lines(self) -> list[tuple[str, str]]:
        """Return the lines for the operator: labels and values."""
        return [("admin", self.url), *([("token", self.token)] if self.is_new else [])]

    @contextlib.asynccontextmanager
    async def serving(self, source: FleetSource, clock: Clock, observer: Observer) -> AsyncIterator[None]:
        """Answer requests while the block runs. At its end live streams end, and the last answers are written."""
        surface = Surface(source, self.token, observer, self.hosts, clock=clock)
        deadlines = Deadlines(LIMITS, _STALL, hurried=True)
        members = Members(surface.serve, deadlines, surface.guard.refused, observer=observer)
        acceptor = Acceptor(members, clock, observer, tls=self.tls)
        async with acceptor.running([self.sock]):
            try:
                yield
            finally:
                acceptor.close_sockets()
                members.leaving = True
                surface.streams.end()
                await acceptor.end(_GOODBYE)


@contextlib.contextmanager
def open_admin(settings: AdminSettings, tls: ssl.SSLContext | None = None) -> Iterator[AdminAddress]:
    """Open the socket, and close it at the end. `tls` is used where other machines can connect.

    Raises:
        ConfigError: the address cannot be used, or other machines could reach it without a token that the operator
            knows.
    """
    with open_socket(settings.address, OPTION) as sock:
        is_local = is_unix(sock) or is_loopback(host_of(sock))
        token = settings.token or os.environ.get(VARIABLE, "")
        if not is_local:
            _check_exposed(settings, token)
        if token and not _TOKEN.fullmatch(token):
            raise ConfigError(
                "the admin token must have 16 to 512 characters: letters, digits and signs of ASCII, no spaces"
            )
        if not token and not sys.stderr.isatty():
            raise ConfigError(
                f"{OPTION} needs a token, and there is no terminal that could show a new one: {_GIVE_TOKEN}"
            )
        yield AdminAddress(
            sock,
            token or SystemRandom().token(_TOKEN_BYTES),
            not token,
            tuple(settings.allowed_hosts),
            None if is_local else tls,
        )


def _check_exposed(settings: AdminSettings, token: str) -> None:
    where = f"{OPTION} {settings.address} can be reached from other machines"
    if not token:
        raise ConfigError(f"{where}: {_GIVE_TOKEN}")
    if tuple(settings.allowed_hosts) == LOOPBACK_HOSTS:
        raise ConfigError(
            f"{where}: name the hosts by which operators call it with --admin-host admin.example.com, or --admin-host '*' "
            "behind a proxy that checks it"
        )
