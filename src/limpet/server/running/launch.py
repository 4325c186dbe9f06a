"""The parts that a server needs only when it runs: engine, back, fronts, store.

They take most of the time that an import of Limpet would take. So `Server` and `Served` import this module on first
use, and `from limpet import Server` stays quick (`tools/import_time.py`).
"""

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Iterator

from limpet.backs.shown import shown_back
from limpet.config import AdminSettings, Limits
from limpet.engine.engine import Engine
from limpet.errors import ConfigError
from limpet.fronts.http.asgi_host.mount import Mount
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.serve import run_http
from limpet.fronts.stdio import run_stdio
from limpet.ops.log import LogObserver
from limpet.ops.operated import Operable
from limpet.ops.tracebacks import trimmed
from limpet.ports import Observer
from limpet.server.running.cards import card_routes
from limpet.server.running.native_back import NativeBack
from limpet.server.running.route_applications import applications
from limpet.stores.base import Store
from limpet.stores.urls import open_store
from limpet.transports.loops import Beside, check_http_system

__all__ = [
    "Engine",
    "HttpFront",
    "LogObserver",
    "Mount",
    "NativeBack",
    "administered",
    "applications",
    "card_routes",
    "check_http_system",
    "run_http",
    "run_stdio",
    "shown_back",
    "store_for",
    "trimmed",
]


def store_for(
    store: Store | str | None, *, limits: Limits, namespace: str, observer: Observer
) -> Store | None:
    """Return the store; None for the engine's default, memory.

    Raises:
        ConfigError: the URL is unknown, or the package of its store is not installed.
        StoreUnavailable: the file of the store cannot be opened now.
    """
    if not isinstance(store, str):
        return store
    return open_store(store, limits=limits, namespace=namespace, observer=observer)


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
