"""Every kind of URL for Redis, and the errors for other URLs."""

import subprocess
import sys
import tempfile
from contextlib import ExitStack, aclosing
from pathlib import Path

import pytest
from redis.asyncio import SSLConnection

from limpet.config import Limits
from limpet.errors import ConfigError, StoreUnavailable
from limpet.stores.memory import MemoryStore
from limpet.stores.redis.link import Cluster, Single, _credentials, connect
from limpet.stores.redis.store import RedisStore
from limpet.stores.urls import open_store
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.redis_server import RedisServer, needs_redis, redis_pair, replicate
from tests.support import async_test, until, wait_until


@async_test
async def test_a_url_opens_its_store() -> None:
    memory = open_store("memory:")
    assert isinstance(memory, MemoryStore)
    store = open_store("redis://127.0.0.1:1/3", limits=Limits(sessions=7), namespace="mine")
    async with aclosing(store):
        assert isinstance(store, RedisStore)
        assert store._limits.sessions == 7
        assert store.key("h") == "lp:1:mine:{h}"


@async_test
async def test_relatives_of_redis_are_understood() -> None:
    for url, kind in (
        ("redis://user:word@host:1/2", Single),
        ("rediss://host", Single),
        ("valkey://host:6380", Single),
        ("valkeys://host", Single),
        ("redis+cluster://a:1,b:2,c", Cluster),
        ("redis+sentinel://a:1,b:2/mymaster/3", Single),
    ):
        link = connect(url)
        async with aclosing(link):
            assert isinstance(link, kind)


@pytest.mark.parametrize("url", ["mysql://x", "redis", "", "redis+sentinel://a:1"])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("redis://a?ssl=1", "rediss://"),
        ("redis://a?tls=true", "rediss://"),
        ("redis://a?ssl_ca_certs=/ca.pem", "rediss://"),
        ("valkey://a?ssl=1", "valkeys://"),
        ("rediss://a?ssl=1", "rediss://"),
        ("redis://a?no_such_option=1", "no_such_option"),
        ("redis+cluster://a?tls=1", "ssl=1"),
        ("redis+cluster://a?SSL=1", "ssl=1"),
        ("redis+cluster://a?ssl=", "ssl=1"),
        ("redis+cluster://a?ssl=on", "ssl=1"),
        ("redis+cluster://a?ssl_ca_certs=/ca.pem", "ssl=1"),
        ("redis+cluster://a?ssl=0&ssl_ca_certs=/ca.pem", "ssl=1"),
        ("redis+cluster://a?ssl=1&ssl_cert_reqs=none", "ssl=1"),
        ("redis+cluster://a?ssl=1&ssl=0", "twice"),
        ("redis+cluster://a#?ssl=1", "%23"),
        ("redis+sentinel://a/m?tls=1", "ssl=1"),
        ("redis+sentinel://a/m?ssl_certfile=/own.crt", "ssl=1"),
        ("redis://:pass#word@a", "%23"),
    ],
)
def test_an_option_without_effect_is_refused(url: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        open_store(url)


@pytest.mark.parametrize("url", ["redis+sentinel://u:p%40s%23@a/m", "redis+cluster://u:p%40s%23@a"])
def test_a_password_is_decoded(url: str) -> None:
    assert _credentials(url) == {"username": "u", "password": "p@s#"}


@pytest.mark.parametrize(("option", "has_tls"), [("", False), ("?ssl=0", False), ("?ssl=1", True)])
@async_test
async def test_with_tls_the_sentinels_and_the_master_behind_them_have_it(
    option: str, *, has_tls: bool
) -> None:
    link = connect(f"redis+sentinel://a,b/mymaster{option}")
    async with aclosing(link):
        assert isinstance(link, Single)
        pools = [link._client.connection_pool, *(one.connection_pool for one in link._sentinels)]
        assert [issubclass(pool.connection_class, SSLConnection) for pool in pools] == [has_tls] * 3


def test_without_the_redis_package_the_error_names_the_package_to_install() -> None:
    program = (
        "import sys; sys.modules['redis'] = None\n"
        "from limpet.stores.urls import open_store\n"
        "try: open_store('redis://x')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "ConfigError" in done.stdout
    assert "pip install 'redis[hiredis]'" in done.stdout


@async_test
async def test_a_valkey_url_reaches_the_server(server: RedisServer) -> None:
    store = RedisStore(server.url.replace("redis://", "valkey://"))
    async with aclosing(store):
        await store.open(record(), evict=False)
        assert await store.find(KEY, PRINCIPAL) is not None


async def is_found(store: RedisStore) -> bool:
    try:
        return await store.find(KEY, PRINCIPAL) is not None
    except StoreUnavailable:
        return False


@needs_redis
@async_test
async def test_behind_sentinels_the_store_follows_the_master() -> None:
    with redis_pair() as (primary, replica), tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        watch = (
            f"sentinel monitor mymaster 127.0.0.1 {primary.port} 1\n"
            "sentinel down-after-milliseconds mymaster 500\n"
            "sentinel failover-timeout mymaster 2000\n"
        )
        sentinel = RedisServer(Path(home) / "sentinel", sentinel=watch)
        stack.callback(sentinel.stop)
        store = RedisStore(f"redis+sentinel://127.0.0.1:{sentinel.port}/mymaster")
        async with aclosing(store):
            await store.open(record(), evict=False)
            replicate(primary, replica)
            asked = ("SENTINEL", "REPLICAS", "mymaster")
            wait_until(lambda: f"port={replica.port}" in sentinel.tell(*asked).replace("\n", "="))
            primary.stop()
            await until(lambda: is_found(store))
            assert "role:master" in replica.tell("INFO", "replication")
