"""A closing ends the exchanges in flight in the same step, and lets readers read to the end."""

import asyncio
from typing import Final

from limpet.core.lifecycle import SessionInput
from limpet.errors import SessionGone
from limpet.stores.base import LINGER_SECONDS, LINGER_SHARE, Ending, Refusal, WakeUp
from limpet.testing.store.bench import (
    KEY,
    PRINCIPAL,
    Bench,
    Contract,
    data_of,
    record,
    refused,
    scenario,
    tag_of,
)
from limpet.wire.jsonrpc import RequestId

ENDING: Final = Ending(b'{"id":', b',"error":{}}', tag=tag_of("ending", 7))


class ClosingRules(Contract):
    """close, with an ending."""

    @scenario()
    async def test_a_stream_in_flight_ends_and_can_be_read_to_its_end(self, bench: Bench) -> None:
        ids: dict[str, RequestId] = {"a": 7, "b": "7", "c": 'quote " slash / line\n ü 💡', "d": -(2**53)}
        for stream, request_id in ids.items():
            key = f"of-{stream}"
            await bench.open(key)
            fence = await bench.streaming(request_id, stream, key=key)
            start = await bench.store.append(key, stream, fence, [(tag_of(stream, 1), b"one")])
            await bench.store.close(key, SessionInput.DELETED, ENDING)
            page = await bench.read(stream, start, key)
            assert page.finished
            assert data_of(page) in ([ENDING.message(request_id)], [_escaped(ENDING.message(request_id))])
            assert page.events[0].position.tag == ENDING.tag
            assert (WakeUp.STREAM, key, stream) in bench.wakeups
            await refused(bench.store.append(key, stream, fence, [(tag_of(stream, 2), b"two")]), SessionGone)

    @scenario()
    async def test_of_a_closed_session_only_the_reading_is_left(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.append("a", fence, 1)
        assert await bench.store.close(KEY, SessionInput.DELETED, ENDING) is not None
        assert await bench.store.close(KEY, SessionInput.DELETED, ENDING) is None
        assert await bench.store.find(KEY, PRINCIPAL) is None
        assert await bench.claim(2, "b") is Refusal.NO_SESSION
        assert await bench.store.attach(KEY, PRINCIPAL, "a", start) is Refusal.NO_SESSION
        assert not await bench.store.detach(KEY, "a", 0, start, broke=True)
        assert not await bench.lives()
        assert (await bench.read("a", start)).finished

    @scenario()
    async def test_a_stream_without_a_reader_is_gone_with_its_session(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.append("a", fence, 1)
        await bench.store.detach(KEY, "a", 0, start, broke=True)
        await bench.store.close(KEY, SessionInput.DELETED, ENDING)
        assert await bench.store.read(KEY, "a", start, 10, 1_000) is None

    @scenario()
    async def test_a_reader_of_a_finished_stream_reads_on_after_the_closing(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.append("a", fence, 1)
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 2))
        await bench.store.close(KEY, SessionInput.EXPIRED)
        page = await bench.read("a", start)
        assert (data_of(page), page.finished) == ([b"last"], True)

    @scenario()
    async def test_the_streams_of_a_closed_session_are_forgotten_in_time(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.append("a", fence, 1)
        await bench.store.close(KEY, SessionInput.DELETED, ENDING)
        bench.clock.advance(LINGER_SECONDS + 1)
        await bench.sweep()
        assert await bench.store.read(KEY, "a", start, 10, 1_000) is None

    @scenario(streams_bytes=1_000 * LINGER_SHARE)
    async def test_what_is_left_of_closed_sessions_is_bounded_and_the_oldest_goes(self, bench: Bench) -> None:
        starts = {}
        for number in range(5):
            key = f"s{number}"
            await bench.open(key)
            fence = await bench.streaming(1, "a", key=key)
            starts[key] = (await bench.attach("a", key=key)).cursor
            await bench.store.append(key, "a", fence, [(tag_of(key, 1), b"x" * 400)])
            await bench.store.close(key, SessionInput.DELETED, ENDING)
        left = [await bench.store.read(key, "a", start, 10, 1_000) for key, start in starts.items()]
        assert [page is not None and page.finished for page in left] == [False, False, False, True, True]
        await bench.open("s0")

    @scenario()
    async def test_another_session_finds_nothing_of_a_closed_one(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.append("a", fence, 1)
        await bench.store.close(KEY, SessionInput.DELETED, ENDING)
        for number in range(3):
            key = f"next-{number}"
            await bench.open(key)
            await bench.begin(1, f"b{number}", key=key)
            assert await bench.store.attach(key, PRINCIPAL, "a", None) is Refusal.UNRESUMABLE
            assert await bench.store.read(key, "a", start, 10, 1_000) is None
        assert await bench.store.open(record(), evict=False) == []
        await bench.begin(1, "c")

    @scenario()
    async def test_claims_beside_a_closing_end_with_it_or_are_refused(self, bench: Bench) -> None:
        await bench.open()
        claims = [bench.claim(number, f"s{number}") for number in range(20)]
        closing = bench.store.close(KEY, SessionInput.DELETED, ENDING)
        closed, *_ = await asyncio.gather(closing, *claims)
        assert closed is not None
        assert await bench.claim(99, "late") is Refusal.NO_SESSION


def _escaped(message: bytes) -> bytes:
    """Return the message as an encoder writes it that escapes slashes too."""
    return message.replace(b"/", b"\\/")
