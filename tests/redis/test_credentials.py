"""Credentials that a function gives: asked for each connection, so a password may change while the server runs."""

from contextlib import aclosing

import pytest

from limpet.errors import ConfigError
from limpet.stores.redis.store import RedisStore
from tests.redis_server import needs_redis, redis_cluster, redis_server
from tests.support import async_test


class Rotated:
    """Gives a user and a password that may change."""

    def __init__(self) -> None:
        self.password = "one"
        self.asked = 0

    async def __call__(self) -> tuple[str, str]:
        self.asked += 1
        return "app", self.password


@needs_redis
@async_test
async def test_each_connection_asks_for_the_credentials_of_now() -> None:
    rotated = Rotated()
    with redis_server() as server:
        server.tell("ACL", "SETUSER", "app", "on", ">one", "~lp:*", "&lp:*", "+@all")
        store = RedisStore(server.url, credentials=rotated)
        async with aclosing(store):
            await store.renew(60)
            assert rotated.asked == 1
            rotated.password = "two"
            server.tell("ACL", "SETUSER", "app", "resetpass", ">two")
            server.tell("CLIENT", "KILL", "USER", "app")
            await store.renew(60)
            assert rotated.asked == 2
            twin = store.twin()
            await twin.renew(60)
            await twin.aclose()
            assert rotated.asked == 3


@needs_redis
@async_test
async def test_a_cluster_asks_too() -> None:
    rotated = Rotated()
    with redis_cluster() as nodes:
        for node in nodes:
            node.tell("ACL", "SETUSER", "app", "on", ">one", "~lp:*", "&lp:*", "+@all")
        url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        store = RedisStore(url, credentials=rotated)
        async with aclosing(store):
            await store.renew(60)
            assert rotated.asked


@pytest.mark.parametrize("url", ["redis://u:p@h", "redis+sentinel://u@h/m", "redis+cluster://u@h"])
def test_a_url_with_a_user_and_a_function_contradict_each_other(url: str) -> None:
    with pytest.raises(ConfigError, match="must not have a user"):
        RedisStore(url, credentials=Rotated())
