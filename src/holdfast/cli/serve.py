"""`holdfast serve`: load a server object or put one in front of another server, apply the options to its settings, run a front for it."""

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.backs.proxy.options import Home
from holdfast.cli import banner, stores
from holdfast.cli.behind import Source
from holdfast.cli.options import Options
from holdfast.cli.secrets import forward_key
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.fronts.http.front import HttpFront
from holdfast.fronts.http.serve import run_http
from holdfast.fronts.stdio import run_pipes
from holdfast.transports.stdio import claimed_stdio

if TYPE_CHECKING:
    from holdfast.server.served import Served


def address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `:PORT` or `PORT`.

    Raises:
        ConfigError: it has another form.
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the largest port
        raise ConfigError(f"--http takes HOST:PORT such as 127.0.0.1:8000, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def log_to_stderr(level: str) -> None:
    """Send log records of this level and above to stderr.

    Raises:
        ConfigError: there is no such level.
    """
    names = logging.getLevelNamesMapping()
    if level.upper() not in names:
        raise ConfigError(f"--log-level is one of debug, info, warning, error, critical, not {level!r}")
    logging.basicConfig(level=names[level.upper()], format="%(asctime)s %(levelname)s %(name)s %(message)s")


def prepare(source: Source, options: Options) -> "Served":
    """Return the server that is named, with the options applied.

    Raises:
        ConfigError: the options cannot work.
    """
    if options.store is not None:
        stores.check(options.store)
    server = source.server(options)
    before = (server.settings, server.store, server.namespace)
    wanted = (
        options.over(server.settings),
        server.store if options.store is None else options.store,
        options.namespace or server.namespace,
    )
    key = forward_key(options.forward_key_file)
    if wanted != before or options.home is not None or key is not None:
        if server.is_built:
            raise ConfigError(
                f"{source.object} built its engine while it was imported, so options cannot change it"
            )
        server.settings, server.store, server.namespace = wanted
        server.forward_key = key or server.forward_key
    if options.home is not None:
        _set_home(server, options.home)
    return server


def _set_home(server: "Served", home: Home) -> None:
    from holdfast.server.proxies import Proxy  # noqa: PLC0415 - `--help` does not need it

    if not isinstance(server, Proxy):
        raise ConfigError(
            "--home is for a server in front of another one: a holdfast.Server needs no home, any process answers"
        )
    server.options = replace(server.options, home=home)


def front_of(server: "Served", options: Options) -> HttpFront:
    """Return the HTTP front for a server."""
    return server.front(options.http())


@contextlib.contextmanager
def explained(server: "Served") -> Iterator[None]:
    """Turn an error of the store at start into one that names the store."""
    try:
        yield
    except StoreUnavailable as error:
        named = "in memory" if server.store is None else stores.shown(server.store, server.namespace)
        cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
        raise ConfigError(
            f"the store {named} cannot be used: {error}{cause}; start it, or name another with --store URL or HOLDFAST_STORE"
        ) from None


def serve(source: Source, http: str | None, options: Options, *, log_level: str) -> None:
    """Serve in this process: over HTTP at an address, or over stdio without one.

    Raises:
        ConfigError: the options cannot work.
    """
    log_to_stderr(log_level)
    if http is None:
        # Before the author's code is imported, because its output is not protocol.
        with claimed_stdio() as pipes:
            server = prepare(source, options)
            with explained(server):
                run_pipes(server.engine, *pipes)
        return
    where = address(http)
    server = prepare(source, options)
    with explained(server):
        front = front_of(server, options)
        run_http(front, *where, ready=lambda url: banner.show(banner.facts(server, url)))
