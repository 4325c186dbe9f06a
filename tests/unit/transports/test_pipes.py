"""Bytes through descriptors: in order, whole, and never more than a bound ahead of the other side."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator

import pytest

from limpet.transports.pipes import CHUNK, PENDING, PipeReader, PipeWriter
from tests.support import BOUND, async_test


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    source, sink = os.pipe()
    yield source, sink
    with contextlib.suppress(OSError):
        os.close(sink)
    # A reader that still waits would read the next file with this descriptor number: let it see the end first.
    for thread in threading.enumerate():
        if thread.name == "limpet-reader":
            thread.join(BOUND)
    with contextlib.suppress(OSError):
        os.close(source)


async def read_all(source: int, size: int) -> bytes:
    """Read so many bytes the way a slow peer would, away from the loop."""
    data = b""
    while len(data) < size:
        data += await asyncio.to_thread(os.read, source, CHUNK)
    return data


@async_test
async def test_chunks_come_in_order_and_the_end_stays_empty(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    reader = PipeReader(source)
    os.write(sink, b"one")
    assert await reader.read() == b"one"
    os.write(sink, b"two")
    assert await reader.read() == b"two"
    os.close(sink)
    assert [await reader.read(), await reader.read()] == [b"", b""]


@async_test
async def test_a_regular_file_can_be_read(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "requests")  # noqa: PTH118
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(b"x" * (CHUNK + 1))
    fd = os.open(path, os.O_RDONLY)
    try:
        reader = PipeReader(fd)
        sizes = [len(await reader.read()) for _ in range(3)]
    finally:
        os.close(fd)
    assert sizes == [CHUNK, 1, 0]


@async_test
async def test_a_non_blocking_descriptor_works_too(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    os.set_blocking(source, False)
    os.set_blocking(sink, False)
    reader, writer = PipeReader(source), PipeWriter(sink)
    text = b"z" * (4 * PENDING)
    writing = asyncio.ensure_future(writer.write(text))
    received = b""
    while len(received) < len(text):
        received += await reader.read()
    await writing
    assert received == text
    writer.close()


@async_test
async def test_texts_of_many_writers_arrive_whole(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    writer = PipeWriter(sink)
    lines = [bytes([65 + i % 26]) * 5_000 + b"\n" for i in range(100)]
    writing = asyncio.gather(*(writer.write(line) for line in lines))
    received = await read_all(source, sum(map(len, lines)))
    await writing
    assert await writer.flush(5)
    assert received == b"".join(lines)
    writer.close()


@async_test
async def test_writers_wait_for_a_peer_that_does_not_read_and_their_buffer_is_bounded(
    pipe: tuple[int, int],
) -> None:
    source, sink = pipe
    writer = PipeWriter(sink)
    piece = b"x" * 10_000
    writing = [asyncio.ensure_future(writer.write(piece)) for _ in range(200)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert writer._pending < PENDING + len(piece)
    waiting = [task for task in writing if not task.done()]
    assert len(waiting) > 100
    await read_all(source, 200 * len(piece))
    await asyncio.gather(*writing)
    writer.close()


@async_test
async def test_a_peer_that_has_gone_is_an_error_to_every_writer(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    writer = PipeWriter(sink)
    os.close(source)
    await writer.write(b"lost")
    assert not await writer.flush(5)
    with pytest.raises(BrokenPipeError):
        await writer.write(b"more")
    writer.close()


@async_test
async def test_giving_up_frees_those_that_wait_for_a_stuck_peer(pipe: tuple[int, int]) -> None:
    _, sink = pipe
    writer = PipeWriter(sink)
    await writer.write(b"x" * (2 * PENDING))
    stuck = asyncio.ensure_future(writer.write(b"more"))
    await asyncio.sleep(0)
    writer.give_up()
    with pytest.raises(BrokenPipeError):
        await stuck
