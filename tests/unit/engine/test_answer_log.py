"""The answer of a forwarded request, which another replica reads, while the store is unavailable."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from limpet.engine.delivery import Batch
from limpet.engine.forwarding import _AnswerLog
from limpet.stores.base import Claim, Claimed
from limpet.testing.seeded_random import SeededRandom
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.stores import ScriptedStore
from tests.support import virtual_test


@pytest.mark.parametrize("command", ["append", "settle", "read"])
@pytest.mark.parametrize("lost", [False, True], ids=["not applied", "its reply is lost"])
@virtual_test
async def test_it_is_written_once_and_to_its_end_when_the_store_is_back(command: str, *, lost: bool) -> None:
    store = ScriptedStore()
    await store.open(record(), evict=False)
    claimed = await store.claim(KEY, PRINCIPAL, Claim(1, "answer", b"digest"))
    assert isinstance(claimed, Claimed)
    start = await store.open_stream(KEY, "answer", claimed.fence, 1)
    runtime: Any = SimpleNamespace(store=store, random=SeededRandom())
    forwarded: Any = SimpleNamespace(session=KEY, stream="answer")
    log = _AnswerLog(runtime, forwarded, claimed.fence, start)
    if lost:
        store.lose_replies(command)
    else:
        store.fail(command)

    async def answer() -> None:
        await log.silence()
        await log.write(Batch([b'{"progress":1}']))
        await log.write(Batch([b'{"result":{}}'], finished=True))

    answering = asyncio.create_task(answer())
    await asyncio.sleep(60)
    assert store.failed > 1
    store.recover()
    await answering
    found = await store.read(KEY, "answer", start, 10, 10_000)
    assert found is not None
    assert [event.data for event in found.events] == [b'{"progress":1}', b'{"result":{}}']
