"""A Redis of this directory's own, emptied for each test."""

from collections.abc import Iterator

import pytest

from tests.programs import program
from tests.redis_server import RedisServer, redis_server


@pytest.fixture(scope="module")
def one_server() -> Iterator[RedisServer]:
    program("redis-server")
    with redis_server() as server:
        yield server


@pytest.fixture
def server(one_server: RedisServer) -> RedisServer:
    one_server.tell("FLUSHALL")
    return one_server
