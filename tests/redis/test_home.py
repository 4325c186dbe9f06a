"""A call that arrives at another replica than the home of its session, on a real Redis."""

from contextlib import aclosing

from bench.homes import measure
from limpet.stores.base import Store
from limpet.stores.redis.store import RedisStore
from tests.redis.links import Lossy
from tests.redis_server import RedisServer
from tests.support import async_test

GENEROUS_MS = 100.0
"""A quiet machine needs 2 ms (docs/in-front.md). A lost wake-up, or polling, would need up to a second for each message."""


@async_test
async def test_a_forwarded_call_takes_little_longer_than_one_at_the_home(server: RedisServer) -> None:
    stores: list[Store] = [RedisStore(server.url) for _ in range(2)]
    at_home, forwarded = await measure(stores, calls=60)
    assert forwarded - at_home < GENEROUS_MS


@async_test
async def test_a_request_that_is_taken_back_by_a_command_sent_twice_was_there(server: RedisServer) -> None:
    sender = RedisStore(Lossy(server.url, 1, replies=1.0, commands=0.0), replica="sender")
    async with aclosing(sender):
        home = RedisStore(server.url, replica="home")
        async with aclosing(home):
            await home.renew(60)
            assert await sender.forward("home", "f", b"run this", seconds=60)
            assert await sender.remove_forwarded("f", replica="home"), "its first reply was lost"
            assert not await sender.remove_forwarded("f", replica="home")
            assert await home.inbox() == []
