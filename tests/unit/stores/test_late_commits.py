"""A commit whose reply did not come is applied before the next one or never: it cannot pass for another, or arrive later."""

import pytest
from typing_extensions import override

from limpet.config import Limits
from limpet.errors import StoreUnavailable
from limpet.stores.base import Claim, Claimed
from limpet.stores.shared.commit import Commit, Reply
from limpet.stores.shared.shelf import NoRoom
from limpet.testing import VirtualClock
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.dicts import DictStore, Shelves
from tests.support import async_test


class Late(DictStore):
    """A store whose next commit is given up, and arrives when the test lets it."""

    gives_up = overtakes = is_full = False
    late: Commit | None = None

    @override
    async def commit(self, key: str, commit: Commit) -> Reply:
        if self.gives_up:
            self.gives_up, self.late = False, commit
            raise StoreUnavailable("no reply came in time")
        if self.is_full and not commit.frees:
            raise NoRoom("on purpose")
        if self.overtakes:
            self.overtakes = False
            await self.arrive()
        return await super().commit(key, commit)

    async def arrive(self) -> Reply:
        """Let the late commit arrive."""
        assert self.late is not None
        return await super().commit(KEY, self.late)


async def _with_a_late_attach() -> tuple[Late, DictStore]:
    shelves, clock = Shelves(), VirtualClock()
    one, two = Late(Limits(), clock, shelves), DictStore(Limits(), clock, shelves)
    await one.open(record(), evict=False)
    one.gives_up = True
    with pytest.raises(StoreUnavailable):
        await one.attach(KEY, PRINCIPAL, None, None)
    return one, two


@async_test
async def test_a_commit_that_arrives_before_the_next_one_does_not_pass_for_it() -> None:
    one, two = await _with_a_late_attach()
    one.overtakes = True
    assert isinstance(await one.claim(KEY, PRINCIPAL, Claim(1, "a", b"")), Claimed)
    status = await two.look(KEY)
    assert status is not None
    assert (status.running, status.readers) == (1, 2)


@async_test
async def test_after_any_later_command_it_is_applied_or_never_will_be() -> None:
    for overtakes in (False, True):
        one, two = await _with_a_late_attach()
        one.overtakes = overtakes
        probed = await one.probe(KEY, record().standalone)
        await one.arrive()
        assert await two.probe(KEY, record().standalone) == probed
        status = await two.look(KEY)
        assert status is not None
        assert status.readers == overtakes


@async_test
async def test_a_session_whose_commit_is_in_doubt_is_looked_at_until_it_is_not() -> None:
    one, two = await _with_a_late_attach()
    await one.look_again()
    await one.arrive()
    status = await two.look(KEY)
    assert status is not None
    assert status.readers == 0
    numbers = one.shelves.sessions[KEY].numbers
    await one.look_again()
    assert one.shelves.sessions[KEY].numbers == numbers


@async_test
async def test_a_full_store_settles_a_doubt_too() -> None:
    one, _ = await _with_a_late_attach()
    one.is_full = True
    assert await one.probe(KEY, record().standalone) is None
    assert not one._entries[KEY].is_in_doubt


@async_test
async def test_a_new_incarnation_has_no_doubt() -> None:
    one, _ = await _with_a_late_attach()
    for number in range(5):
        one.gives_up = True
        with pytest.raises(StoreUnavailable):
            await one.claim(KEY, PRINCIPAL, Claim(number, f"{number}", b""))
    one.me = f"{one.replica}.2"
    assert isinstance(await one.claim(KEY, PRINCIPAL, Claim("x", "x", b"")), Claimed)
    assert not one._entries[KEY].is_in_doubt
