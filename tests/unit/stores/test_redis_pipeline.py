"""The shared connection to Redis: what arrives on a connection that was given up reaches no later command."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from limpet.stores.redis.pipeline import RedisPipeline
from tests.support import async_test, until


class Quiet:
    """A server that replies to the greeting of the library, and to nothing else by itself."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.writers)
        self.writers.append(writer)
        while (line := await reader.readline()).startswith(b"*"):
            words = []
            for _ in range(int(line[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            if words[0] in {b"HELLO", b"CLIENT"}:
                writer.write(b"+OK\r\n" if words[0] == b"CLIENT" else b"*2\r\n$5\r\nproto\r\n:2\r\n")
            else:
                self.commands.append((number, words[0]))


@asynccontextmanager
async def quiet() -> AsyncIterator[tuple[Quiet, RedisPipeline]]:
    server = Quiet()
    async with await asyncio.start_server(server.connected, "127.0.0.1", 0) as listening:
        client = Redis(port=listening.sockets[0].getsockname()[1])
        pipe = RedisPipeline(client.connection_pool)
        try:
            yield server, pipe
        finally:
            await pipe.aclose()
            await client.aclose()
            for writer in server.writers:
                writer.close()


@async_test
async def test_a_reply_on_a_connection_that_was_given_up_reaches_no_command_of_the_next_one() -> None:
    async with quiet() as (server, pipe):
        first = asyncio.ensure_future(pipe.execute("FIRST"))
        await until(lambda: server.commands == [(0, b"FIRST")])
        assert pipe._transport is not None
        left = pipe._transport.get_protocol()
        assert isinstance(left, asyncio.Protocol)
        left.eof_received()
        with pytest.raises(RedisConnectionError):
            await first
        second = asyncio.ensure_future(pipe.execute("SECOND"))
        await until(lambda: (1, b"SECOND") in server.commands)
        left.data_received(b"+first\r\n")
        left.connection_lost(None)
        await asyncio.sleep(0)
        assert not second.done()
        server.writers[1].write(b"+second\r\n")
        assert await second == b"second"


@async_test
async def test_no_connection_is_used_a_second_time() -> None:
    async with quiet() as (server, pipe):
        used: list[object] = []
        for _ in range(3):
            sent = asyncio.ensure_future(pipe.execute("AGAIN"))
            await until(lambda: len(server.commands) == len(used) + 1)
            used.append(pipe._connection)
            assert pipe._transport is not None
            protocol = pipe._transport.get_protocol()
            assert isinstance(protocol, asyncio.Protocol)
            protocol.eof_received()
            with pytest.raises(RedisConnectionError):
                await sent
            await until(lambda: not pipe._closing)
        assert len(set(map(id, used))) == len(used)
