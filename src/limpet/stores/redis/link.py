"""The connection to Redis: a single server, one behind sentinels, or a cluster. The same scripts run on each.

`run` sends a script once, and has exactly one of four results: a reply; `Lost`, it may have been executed; `Later`,
it was not executed and may be sent again; or it was refused. The client library below never sends a command again,
because it would not report it; `core.py` does, and sets the flag by which scripts recognize their own work.

A script is sent by its hash (EVALSHA). A server that does not know the hash refuses it without executing anything, and
then gets the text (EVAL), once. This also covers a restart, a failover and SCRIPT FLUSH.

* **Single**: all commands of a process share one connection (`pipeline.py`), so they are executed in the order in which
  they were sent. Behind sentinels the library asks them for the primary whenever it connects.
* **Cluster**: the library sends each script to the node that has the slot of its key. All keys of a script are in one
  slot (`core.py`). There is no order between commands of different slots, and none is needed.

Wake-ups come over pub/sub, on separate connections (`subscriber`): a connection that subscribes can do nothing else.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import NoScriptError, RedisClusterException, RedisError
from typing_extensions import override

from limpet.errors import ConfigError
from limpet.stores.credentials import Credentials
from limpet.stores.redis.pipeline import RedisPipeline
from limpet.stores.redis.refusals import spoils, translated
from limpet.stores.redis.scripts import scripts
from limpet.stores.redis_address import TLS_OPTIONS
from limpet.stores.shared.answers import Lost

Argument = bytes | str | int

_OPTIONS: Final[dict[str, Any]] = {"socket_connect_timeout": 2, "socket_keepalive": True}

_AT_ONCE: Final = 100
"""Commands to a cluster that are under way at the same time. Each takes a connection, and the library refuses a
command that finds none."""
_NEVER: Final = ":-"
"""The end of a name of a key that never exists."""


class RedisLink(Protocol):
    """Runs scripts on Redis."""

    async def run(self, script: str, key: str, arguments: tuple[Argument, ...]) -> list[Any]:
        """Run a script on the key's slot.

        Raises:
            Lost: no reply came; it may have been executed.
            Later: it was not executed; the same command may succeed in a moment.
            StoreUnavailable: it was not executed; Redis refuses it now.
            Poisoned: a record cannot be read.
        """

    async def subscriber(self) -> Redis:
        """Return a client that can subscribe to channels."""

    async def policy(self) -> str:
        """Return the setting of Redis for the case that its memory is full."""

    async def aclose(self) -> None:
        """Close all connections."""


class Single:
    """One server: given by URL, or the present master behind sentinels."""

    def __init__(self, client: Redis, sentinels: Iterable[Redis] = ()) -> None:
        self._client = client
        self._sentinels = tuple(sentinels)
        self.pipeline: RedisPipeline = RedisPipeline(client.connection_pool)

    async def run(self, script: str, key: str, arguments: tuple[Argument, ...]) -> list[Any]:
        """Run a script by its hash; where Redis does not know it, by its text."""
        known = scripts()[script]
        try:
            try:
                reply: list[Any] = await self.pipeline.execute("EVALSHA", known.sha, 1, key, *arguments)
            except NoScriptError:
                reply = await self.pipeline.execute("EVAL", known.text, 1, key, *arguments)
        except (RedisError, RedisClusterException, OSError) as error:
            raise translated(error) from error
        return reply

    async def subscriber(self) -> Redis:
        """Return the client itself: a subscription takes its own connection."""
        return self._client

    async def policy(self) -> str:
        """Ask the server."""
        return str((await self._client.info("memory")).get("maxmemory_policy", ""))

    async def aclose(self) -> None:
        """Close everything."""
        await self.pipeline.aclose()
        await self._client.aclose()
        for watcher in self._sentinels:
            await watcher.aclose()


class Cluster:
    """A cluster: each script goes to the node that has its slot.

    The keys of one session are in one slot, and a script builds their names itself. While the slot is being moved, some
    of
    these keys are on one node and some on the other: a script would be stopped in the middle, or would begin a new log
    although the old one is on the other node. So each command also names a key that never exists. While a slot is
    being moved, both nodes refuse a command with several keys of which one is missing (TRYAGAIN), before it starts.
    """

    def __init__(self, client: RedisCluster, options: dict[str, Any]) -> None:
        self._client = client
        self._options = options
        self._subscribers: list[Redis] = []
        self._is_closed = False
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def run(self, script: str, key: str, arguments: tuple[Argument, ...]) -> list[Any]:
        """Run a script by its hash; where the node does not know it, by its text."""
        async with self._room:
            return await self._run(script, key, arguments)

    async def _run(self, script: str, key: str, arguments: tuple[Argument, ...]) -> list[Any]:
        known = scripts()[script]
        words = (2, key, key + _NEVER, *arguments)
        try:
            try:
                reply: list[Any] = await self._client.execute_command("EVALSHA", known.sha, *words)
            except NoScriptError:
                reply = await self._client.execute_command("EVAL", known.text, *words)
        except (RedisError, RedisClusterException, OSError) as error:
            if spoils(error):
                # The library asks for the nodes and their slots again when it is next used.
                await self._client.aclose()
            raise translated(error) from error
        except AttributeError as error:
            # The library closes all connections after some failures, also those that another command is using.
            raise Lost("the connection was closed") from error
        finally:
            if self._is_closed:
                # The link was closed while this command was on its way, and the library has connected again for it.
                await self._disconnect()
        return reply

    async def subscriber(self) -> Redis:
        """Return a client of any node: a message that is published at one node arrives at all."""
        _ = await self._client.initialize()
        node = self._client.get_random_node()
        client: Redis = Redis(host=node.host, port=int(node.port), retry=_once(), **self._options)
        self._subscribers.append(client)
        for old in self._subscribers[:-2]:
            self._subscribers.remove(old)
        return client

    async def policy(self) -> str:
        """Ask one of the nodes."""
        _ = await self._client.initialize()
        info = await self._client.info("memory", target_nodes=self._client.get_random_node())
        return str(info.get("maxmemory_policy", ""))

    async def aclose(self) -> None:
        """Close everything. A command that is still on its way closes its connection when it ends."""
        self._is_closed = True
        for client in self._subscribers:
            with contextlib.suppress(RedisError, OSError):
                await client.aclose()
        await self._disconnect()

    async def _disconnect(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            await self._client.aclose()
        # After a failure, and while it connects, the library closes nothing.
        with contextlib.suppress(RedisError, OSError):
            for nodes in ("nodes_cache", "startup_nodes"):
                await self._client.nodes_manager.aclose(nodes)


def _once() -> Retry:
    """Let the library never send a command again: `core.py` does it, and sets a flag."""
    return Retry(NoBackoff(), 0)


class _Provider(CredentialProvider):
    """Gives the library the credentials of a function."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    @override
    async def get_credentials_async(self) -> tuple[str, str]:
        return await self._credentials()


def connect(url: str, credentials: Credentials | None = None) -> RedisLink:
    """Return the way to the Redis that a URL names.

    Raises:
        ConfigError: it is not the URL of a Redis, or has a user although `credentials` are given.
    """
    parts = urlsplit(url)
    if credentials is not None and "@" in parts.netloc:
        raise ConfigError(
            "the store has a function for credentials: the URL must not have a user or a password"
        )
    login: dict[str, Any] = {} if credentials is None else {"credential_provider": _Provider(credentials)}
    match parts.scheme:
        case "redis+cluster":
            return _cluster(url, login)
        case "redis+sentinel":
            return _sentinel(url, login)
        case "valkey" | "valkeys" | "redis" | "rediss" | "unix":
            plain = urlunsplit(parts._replace(scheme=parts.scheme.replace("valkey", "redis")))
            client = Redis.from_url(plain, retry=_once(), **_OPTIONS, **login, socket_timeout=None)
            _check_options(client)
            return Single(client)
        case _:
            raise ConfigError(f"{parts.scheme}:// is no Redis URL")


def _check_options(client: Redis) -> None:
    """Refuse options of a URL that the library does not know, before the first connection.

    Raises:
        ConfigError: there is one.
    """
    pool = client.connection_pool
    try:
        pool.connection_class(**pool.connection_kwargs)
    except TypeError as error:
        raise ConfigError(f"the store's URL has an option that does not exist: {error}") from None


def _credentials(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    given = {"username": parts.username, "password": parts.password}
    return {name: unquote(value) for name, value in given.items() if value}


def _hosts(url: str, port: int) -> list[tuple[str, int]]:
    hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    pairs = [host.rpartition(":") if ":" in host else (host, "", str(port)) for host in hosts]
    return [(host, int(number)) for host, _, number in pairs]


def _cluster(url: str, login: dict[str, Any]) -> Cluster:
    options: dict[str, Any] = {**_credentials(url), **login, **_OPTIONS, **_tls(url)}
    nodes = [ClusterNode(host, port) for host, port in _hosts(url, 6379)]
    client: RedisCluster = RedisCluster(
        startup_nodes=nodes,
        retry=_once(),
        socket_timeout=3,
        # Some more, for what the library and `policy` ask besides.
        max_connections=_AT_ONCE + 10,
        # A moved slot is noted by itself: to ask for all of them would close the connections of all other commands.
        reinitialize_steps=0,
        **options,
    )
    return Cluster(client, options)


def _tls(url: str) -> dict[str, Any]:
    query = parse_qs(urlsplit(url).query)
    ssl = query.get("ssl", ["0"])[0] not in {"0", "false"}
    return {"ssl": ssl, **{name: query[name][0] for name in TLS_OPTIONS if name in query}}


def _sentinel(url: str, login: dict[str, Any]) -> Single:
    """redis+sentinel://[user:password@]host:port,host:port/master[/db][?ssl=1]. With TLS, also to the sentinels."""
    master, _, db = urlsplit(url).path.lstrip("/").partition("/")
    if not master:
        raise ConfigError("the URL names no master; it looks like redis+sentinel://host:26379/mymaster")
    tls = _tls(url)
    sentinel = Sentinel(_hosts(url, 26379), sentinel_kwargs={"socket_timeout": 3, **tls})  # type: ignore[no-untyped-call]
    options: dict[str, Any] = {**_credentials(url), **login, "db": int(db or 0), **_OPTIONS, **tls}
    client = sentinel.master_for(master, retry=_once(), socket_timeout=None, **options)
    return Single(client, sentinel.sentinels)
