"""The data in Redis of a request that another replica runs."""

import asyncio

import pytest
from redis.asyncio import Redis

from limpet.stores.redis.store import RedisStore
from tests.redis_server import RedisServer
from tests.sqlite.test_forwarded import KEY, carry_secrets
from tests.support import async_test

LAST = "that is all"


@pytest.mark.parametrize("key", [None, KEY])
@async_test
async def test_no_credential_no_key_and_no_session_id_is_written_to_redis(
    server: RedisServer, key: str | None
) -> None:
    client = Redis.from_url(server.url)
    async with client.monitor() as monitor:
        stores = [RedisStore(server.url) for _ in range(2)]
        session, _ = await carry_secrets(stores[0], stores[1], asyncio.Event(), key)
        server.tell("ECHO", LAST)
        commands: list[str] = []
        while not commands or LAST not in commands[-1]:
            commands.append((await monitor.next_command())["command"])
    await client.aclose()
    written = "\n".join(commands)
    assert "inputResponses" in written, "the scan sees the requests that are forwarded"
    assert ("sealed " in written) is (key is not None)
    for secret in ("secret-token", session, KEY):
        assert secret not in written
