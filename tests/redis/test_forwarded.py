"""What is written to Redis of a request that another replica runs, or may run again."""

import asyncio

from redis.asyncio import Redis

from holdfast.stores.redis.store import RedisStore
from tests.redis_server import RedisServer
from tests.sqlite.test_forwarded import carry_secrets
from tests.support import async_test

LAST = "that is all"


def test_no_credential_and_no_session_id_is_written_to_redis(server: RedisServer) -> None:
    @async_test
    async def run() -> None:
        client = Redis.from_url(server.url)
        async with client.monitor() as monitor:
            stores = [RedisStore(server.url) for _ in range(2)]
            session, _ = await carry_secrets(stores[0], stores[1], asyncio.Event())
            server.tell("ECHO", LAST)
            commands: list[str] = []
            while not commands or LAST not in commands[-1]:
                commands.append((await monitor.next_command())["command"])
        await client.aclose()
        written = "\n".join(commands)
        assert "x-tenant" in written, "the scan sees the requests that are forwarded and kept"
        assert "secret-token" not in written
        assert session not in written

    run()
