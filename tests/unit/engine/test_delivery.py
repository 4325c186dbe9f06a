"""One loop for every source and sink: nothing is lost, nothing is written twice, and it ends with its source."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from limpet.engine.delivery import Batch, deliver
from limpet.engine.wake import Wake
from tests.support import virtual_test


class Queue:
    """A source in memory: messages, then their end."""

    def __init__(self, *messages: bytes) -> None:
        self.wake = Wake()
        self.waiting = list(messages)
        self.ended = False
        self.over = False
        self.done: list[bytes] = []

    def add(self, *messages: bytes, last: bool = False) -> None:
        self.waiting += messages
        self.ended = self.ended or last
        self.wake.set()

    def stop(self) -> None:
        self.over = True
        self.wake.set()

    def check_end(self) -> bool:
        return self.over

    async def take(self) -> Batch | None:
        # A source may suspend: messages that are added meanwhile must not be lost.
        finished, waiting = self.ended, list(self.waiting)
        await asyncio.sleep(0)
        return Batch(waiting, finished) if waiting else None

    def written(self, batch: Batch) -> None:
        del self.waiting[: len(batch.messages)]
        self.done += batch.messages
        self.over = self.over or batch.finished

    async def wait(self, seconds: float | None) -> bool:
        return await self.wake.wait(seconds)


class Paper:
    """A sink that records the written messages, and when it was silent."""

    def __init__(self, patience: float | None = None) -> None:
        self.patience = patience
        self.lines: list[bytes] = []
        self.silences: list[float] = []
        self.broken = False

    async def write(self, batch: Batch) -> None:
        await asyncio.sleep(0)
        if self.broken:
            raise ConnectionError
        self.lines += batch.messages

    async def silence(self) -> None:
        self.silences.append(asyncio.get_running_loop().time())


@virtual_test
async def test_the_loop_ends_with_the_terminal_message() -> None:
    source, sink = Queue(b"1"), Paper()
    loop = asyncio.ensure_future(deliver(source, sink))
    await asyncio.sleep(1)
    assert not loop.done()
    source.add(b"2", b"end", last=True)
    await loop
    assert sink.lines == [b"1", b"2", b"end"]


@virtual_test
async def test_a_source_that_is_stopped_ends_the_loop_without_a_silence() -> None:
    source, sink = Queue(), Paper(patience=10)
    loop = asyncio.ensure_future(deliver(source, sink))
    await asyncio.sleep(5)
    source.stop()
    await loop
    assert (sink.lines, sink.silences) == ([], [])


@virtual_test
async def test_a_source_that_ends_by_the_clock_gets_no_silence_at_its_end() -> None:
    class Aging(Queue):
        @override
        def check_end(self) -> bool:
            return asyncio.get_running_loop().time() >= 10

    sink = Paper(patience=5)
    await deliver(Aging(), sink)
    assert sink.silences == pytest.approx([5])


@virtual_test
async def test_each_silence_is_reported_and_a_message_begins_the_time_again() -> None:
    source, sink = Queue(), Paper(patience=10)
    loop = asyncio.ensure_future(deliver(source, sink))
    await asyncio.sleep(25)
    source.add(b"1")
    await asyncio.sleep(14)
    source.add(b"end", last=True)
    await loop
    assert sink.silences == pytest.approx([10, 20, 35])


@virtual_test
async def test_a_batch_that_could_not_be_written_stays_in_its_source() -> None:
    source, sink = Queue(b"1"), Paper()
    loop = asyncio.ensure_future(deliver(source, sink))
    await asyncio.sleep(1)
    sink.broken = True
    source.add(b"2")
    with pytest.raises(ConnectionError):
        await loop
    assert (source.done, source.waiting) == ([b"1"], [b"2"])
    source.add(b"end", last=True)
    await deliver(source, sink := Paper())
    assert sink.lines == [b"2", b"end"]


@given(pauses=st.lists(st.integers(0, 3), max_size=12))
@virtual_test
async def test_at_all_moments_every_message_is_written_once_and_in_order(pauses: Sequence[int]) -> None:
    messages = [b"%d" % number for number in range(len(pauses))]
    source, sink = Queue(), Paper()
    loop = asyncio.ensure_future(deliver(source, sink))
    for message, pause in zip(messages, pauses, strict=True):
        for _ in range(pause):
            await asyncio.sleep(0)
        source.add(message)
    source.add(b"end", last=True)
    await loop
    assert sink.lines == [*messages, b"end"]
