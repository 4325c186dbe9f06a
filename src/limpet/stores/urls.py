"""Stores by URL: `memory:`, `sqlite:///path`, `redis://…` and its relatives, `postgres://…`.

A store's module is loaded when it is named.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from limpet.config import Limits
from limpet.errors import ConfigError
from limpet.ports import Clock, Observer
from limpet.stores.base import Store
from limpet.stores.memory import MemoryStore
from limpet.stores.postgres_address import parse as parse_postgres
from limpet.stores.redis_address import check_options
from limpet.stores.sqlite_address import parse


class _Wanted(Struct, frozen=True):
    """The parts of a URL and the arguments of `open_store`."""

    url: str
    limits: Limits
    clock: Clock | None
    namespace: str
    observer: Observer | None


def _memory(wanted: _Wanted) -> Store:
    return MemoryStore(wanted.limits, wanted.clock)


def _sqlite(wanted: _Wanted) -> Store:
    from limpet.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - sqlite3 is loaded only where it is used

    address = parse(wanted.url, wanted.namespace)
    return SqliteStore(
        address.path, wanted.limits, wanted.clock, synchronous=address.synchronous, observer=wanted.observer
    )


def _redis(wanted: _Wanted) -> Store:
    scheme = wanted.url.partition(":")[0]
    if "://" not in wanted.url:
        # The Redis package would read no host from it, and connect to localhost.
        raise ConfigError(f"the store's URL has no host: write {scheme}://host:port, with two slashes")
    check_options(wanted.url)
    try:
        from limpet.stores.redis.store import RedisStore  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {"redis", "hiredis"}:
            raise
        raise ConfigError(
            f"{scheme}: needs the package {package}, which is not installed: pip install 'redis[hiredis]'"
        ) from error
    return RedisStore(
        wanted.url, wanted.limits, wanted.clock, namespace=wanted.namespace, observer=wanted.observer
    )


def _postgres(wanted: _Wanted) -> Store:
    parse_postgres(wanted.url, wanted.namespace)
    try:
        from limpet.stores.postgres.store import PostgresStore  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "asyncpg":
            raise
        raise ConfigError(
            "postgres: needs the package asyncpg, which is not installed: pip install 'asyncpg>=0.32,<0.33'"
        ) from error
    return PostgresStore(
        wanted.url, wanted.limits, wanted.clock, namespace=wanted.namespace, observer=wanted.observer
    )


SCHEMES: Final[dict[str, Callable[[_Wanted], Store]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "redis": _redis,
    "rediss": _redis,
    "valkey": _redis,
    "valkeys": _redis,
    "redis+cluster": _redis,
    "redis+sentinel": _redis,
    "postgres": _postgres,
    "postgresql": _postgres,
}


def open_store(
    url: str,
    *,
    limits: Limits = Limits(),
    clock: Clock | None = None,
    namespace: str = "default",
    observer: Observer | None = None,
) -> Store:
    """Return the store that a URL names; nothing is connected before it is used.

    `namespace` keeps servers apart that share a store: a session of one does not exist in another.
    With a `clock`, that clock is the store's; else a store that is shared has its own.

    Raises:
        ConfigError: no store has such a URL, or a package that it needs is not installed.
    """
    scheme = url.partition(":")[0][:40]
    make = SCHEMES.get(scheme)
    if make is None:
        known = ", ".join(f"{scheme}:" for scheme in SCHEMES)
        raise ConfigError(f"no store's URL begins with {scheme!r}: use one of {known}")
    return make(_Wanted(url, limits, clock, namespace, observer))
