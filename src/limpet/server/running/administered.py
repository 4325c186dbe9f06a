"""`run(admin=...)`: servers of a program, with an admin surface beside them."""

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Iterator

from limpet.config import AdminSettings
from limpet.errors import ConfigError
from limpet.ops.operated import Operable
from limpet.transports.loops import Beside


@contextlib.contextmanager
def administered(servers: Iterable[Operable], admin: AdminSettings | None) -> Iterator[Beside | None]:
    """Open the admin surface's socket, and return the context that serves it; None: no admin surface was asked for.

    Raises:
        ConfigError: an event loop runs already, the address cannot be used, or there is no token.
    """
    if asyncio._get_running_loop() is not None:
        raise ConfigError(
            "run() starts an event loop of its own, and one runs here already: call run() outside of async code, or mount "
            "server.asgi() in the application that runs; to call the server from here, use `async with Client(server)`"
        )
    if admin is None:
        yield None
        return
    from limpet.server.running.operations import Operations, open_admin  # noqa: PLC0415 - imports httptools

    with open_admin(admin) as surface:
        operations = Operations()
        for server in servers:
            operations.take(server)
        for label, value in surface.lines():
            sys.stderr.write(f"{label}: {value}\n")
        sys.stderr.flush()
        yield operations.at(surface)
