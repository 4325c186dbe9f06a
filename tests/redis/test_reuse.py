"""A client that uses one id for all its calls is never refused, although its answers leave before their ends are stored."""

import pytest

from tests.redis.reuse import reuse
from tests.redis_server import RedisServer
from tests.support import async_test


@pytest.mark.parametrize("milliseconds", [0.0, 1.0, 20.0])
@async_test
async def test_an_id_that_was_answered_at_another_replica_is_free_at_once(
    server: RedisServer, milliseconds: float
) -> None:
    found = await reuse(server.port, calls=100, milliseconds=milliseconds, sessions=10)
    assert found == ({200: 100}, 100)
