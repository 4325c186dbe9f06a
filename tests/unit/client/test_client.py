"""The client before it is connected: accepted targets, and errors."""

from contextlib import aclosing

import pytest

from limpet import Client, ConfigError, Server
from limpet.errors import ClientError
from tests.support import async_test


def test_a_version_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="2026-07-28"):
        Client(Server("x"), protocol_version="2024-01-01")


def test_a_client_that_is_not_connected_raises_an_error() -> None:
    with pytest.raises(ClientError, match="async with"):
        _ = Client(Server("x")).agreed


@async_test
async def test_a_server_in_this_process_is_started_with_its_first_client_and_stopped_with_its_last() -> None:
    server = Server("guest house")
    runs: list[bool] = []
    async with Client(server), Client(server, protocol_version="sessions"):
        runs.append(server.engine.started)
    runs.append(server.engine.started)
    assert runs == [True, False]
    async with Client(server) as again:
        await again.ping()


@async_test
async def test_a_server_that_was_running_before_the_client_is_left_running() -> None:
    server = Server("host")
    async with aclosing(server.engine):
        await server.engine.ensure_started()
        async with Client(server) as client:
            await client.ping()
        assert server.engine.started
