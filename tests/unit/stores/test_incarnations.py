"""Work belongs to the incarnation that sent its command: a replica that was declared dead meanwhile begins none."""

import asyncio

import pytest
from typing_extensions import override

from limpet.config import Limits
from limpet.core.rules import streams
from limpet.errors import StoreUnavailable
from limpet.stores.base import Claim, Claimed, Orphan
from limpet.stores.shared.commit import Commit, Reply
from limpet.testing import VirtualClock
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.dicts import DictReplica, DictStore, Shelves
from tests.support import async_test, until


class Gated(DictStore):
    """A store whose commits wait for a gate."""

    sent = 0

    def __init__(self) -> None:
        super().__init__(Limits(), VirtualClock(), Shelves())
        self.gate: asyncio.Event = asyncio.Event()

    @override
    async def commit(self, key: str, commit: Commit) -> Reply:
        self.sent += 1
        await self.gate.wait()
        return await super().commit(key, commit)


@async_test
async def test_a_claim_that_waited_while_its_incarnation_died_is_refused() -> None:
    store = Gated()
    await store.open(record(), evict=False)
    first = asyncio.ensure_future(store.claim(KEY, PRINCIPAL, Claim(1, "a", b"")))
    await until(lambda: store.sent == 1)
    second = asyncio.ensure_future(store.claim(KEY, PRINCIPAL, Claim(2, "b", b"")))
    await asyncio.sleep(0)
    died = store.me
    store.me = f"{store.replica}.2"
    store.gate.set()
    assert isinstance(await first, Claimed)
    with pytest.raises(StoreUnavailable, match="lease"):
        await second
    status = await store.look(KEY)
    assert status is not None
    assert status.running == 1
    orphans = await store.left_by(f"{store.replica}.3", KEY)
    assert orphans is not None
    assert [(one.stream, one.owner) for one in orphans] == [("a", died)], "an earlier incarnation is dead too"
    assert await store.left_by("other.3", KEY) is None


@async_test
async def test_an_incarnation_does_not_restore_the_work_of_the_one_before_it() -> None:
    clock, shelves = VirtualClock(), Shelves()
    store = DictReplica(Limits(), clock, shelves, "a")
    other = DictReplica(Limits(), clock, shelves, "b")
    await store.renew(10.0)
    died = store.me
    await store.open(record(), evict=False)
    claimed = await store.claim(KEY, PRINCIPAL, Claim(1, "x", b""))
    assert isinstance(claimed, Claimed)
    await store.ask(KEY, "x.1", "x")
    # Another replica ends its work, and forgets it.
    assert await other.left_by(died, KEY)
    await other.reap(Orphan(KEY, "x", 1, died), b"end", tag=2)
    assert await other.apply(KEY, False, streams.forget_finished, "x")
    assert await other.left_by(died, KEY) is None
    shelves.leases.clear()
    await store.look_at(KEY)
    await store.renew(10.0)
    assert store.me != died
    assert await store.find(KEY, PRINCIPAL) is not None
    assert isinstance(await store.claim(KEY, PRINCIPAL, Claim(2, "y", b"")), Claimed)
    status = await other.look(KEY)
    assert status is not None
    assert status.running == 1, "only the new call"
