"""Our part of PostgreSQL's protocol: values, messages in pieces, answers that cannot be read."""

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import StoreError, StoreUnavailable
from limpet.stores.postgres import wire
from limpet.stores.postgres.connection import PostgresConnection
from limpet.stores.postgres.lanes import Lanes
from limpet.stores.postgres.link import Link
from limpet.stores.shared.answers import Lost
from tests.postgres.support import Noted, opened, plain_call, stores
from tests.postgres_server import PostgresServer, needs_postgres
from tests.support import async_test


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40))), st.data())
def test_messages_are_the_same_in_any_pieces(messages: list[tuple[int, bytes]], data: st.DataObject) -> None:
    whole = b"".join(bytes([kind]) + (len(body) + 4).to_bytes(4, "big") + body for kind, body in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    reader, found = wire.MessageCutter(), list[tuple[int, bytes]]()
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += reader.feed(whole[start:stop])
    assert found == messages
    assert not reader.is_partial


def test_a_message_without_a_length_is_refused() -> None:
    with pytest.raises(ValueError, match="no length"):
        wire.MessageCutter().feed(b"D\0\0\0\3xx")


def test_a_refusal_has_its_state_and_its_text() -> None:
    refused = wire.refusal(b"SERROR\0C53100\0Mno room\0Dat all\0\0")
    assert (refused.sqlstate, str(refused)) == ("53100", "no room at all")


_VALUES: list[tuple[str, Any]] = [
    ("text", "ä\n"),
    ("bytea", b"\0\xff"),
    ("bigint", -(2**63)),
    ("integer", 2**31 - 1),
    ("boolean", True),
    ("boolean", False),
    ("double precision", 1e300),
    ("text[]", ["a", "", "ß"]),
    ("bigint[]", [0, -1]),
    ("double precision[]", [0.5, -1.0, 2.0]),
    ("bytea[]", [b"", b"\0", None]),
    *((f"{name}[]", []) for name in ("text", "bigint", "double precision", "bytea")),
]


@needs_postgres
@pytest.mark.parametrize(("kind", "value"), _VALUES)
@async_test
async def test_a_value_comes_back_as_it_was_sent(server: PostgresServer, kind: str, value: Any) -> None:
    connection = await _connected(server)
    assert await connection.fetch(f"SELECT $1::{kind}, $2::{kind}", (value, None)) == [[value, None]]
    connection.end()


async def _connected(server: PostgresServer) -> PostgresConnection:
    return await Link(server.url, Noted()).connect()


@needs_postgres
@async_test
async def test_equal_bytes_of_another_statement_are_decoded_as_that_statement_says(
    server: PostgresServer,
) -> None:
    connection = await _connected(server)
    for _ in range(3):
        assert await connection.fetch("SELECT $1::integer", (65,)) == [[65]]
        assert await connection.fetch("SELECT '\\x00000041'::bytea", ()) == [[b"\0\0\0A"]]
        assert await connection.fetch("SELECT $1::integer", (66,)) == [[66]]
    connection.end()


@needs_postgres
@async_test
async def test_an_argument_that_cannot_be_encoded_fails_alone_and_the_connection_goes_on(
    server: PostgresServer,
) -> None:
    async with stores(server.url) as [store]:
        await opened(store)
        for _ in range(2):
            with pytest.raises(StoreError, match="the store failed"):
                await store._run("due", "no time", 1)
        await plain_call(store, "a")
        assert len(store._lanes._idle) == 1


@async_test
async def test_an_answer_that_cannot_be_read_ends_the_connection_and_its_statement_is_lost() -> None:
    class Driver:
        def __init__(self) -> None:
            self._transport = self
            self.is_ended = False

        def set_protocol(self, _: object) -> None:
            """Nothing is received."""

        def write(self, _: bytes) -> None:
            """Nothing is sent."""

        def terminate(self) -> None:
            self.is_ended = True

    for nonsense in (b"D\0\0\0\3", b"t\0\0\0\x0a\0\1\0\0\0\1"):
        driver = Driver()
        connection = PostgresConnection(driver)
        asked = asyncio.ensure_future(connection.fetch("SELECT 1", ()))
        await asyncio.sleep(0)
        connection.data_received(nonsense)
        with pytest.raises(Lost):
            await asked
        assert driver.is_ended
        connection.data_received(wire.END)
        with pytest.raises(Lost):
            await connection.fetch("SELECT 1", ())


@async_test
async def test_a_connection_that_opens_while_the_lanes_close_is_closed() -> None:
    """The end of its opening and the cancellation can meet in one pass of the loop."""

    class Opened:
        is_closed = False

        def end(self) -> None:
            self.is_closed = True

    begun = asyncio.Event()

    class Late:
        async def connect(self) -> Any:
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return connection

    async def prepare(_: object) -> None:
        """Nothing is prepared."""

    connection = Opened()
    several = Lanes(cast("Any", Late()), 2, Noted(), prepare)
    asked = asyncio.ensure_future(several.run("SELECT 1", ()))
    await begun.wait()
    await several.aclose()
    assert connection.is_closed
    with pytest.raises(StoreUnavailable):
        await asked
