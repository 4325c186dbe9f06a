"""Two replicas on one shared store, whose commands meet; and the mistakes of a commit that this finds.

The store is the one of plain dicts, so a mistake of the shared layer or of a rule is found without I/O. Each commit waits for a pass of the loop, so
the commits of both replicas are made from the same session; and each arrives twice, as after a lost reply.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec.structs import replace
from typing_extensions import override

from limpet.config import Limits
from limpet.core.lifecycle import SessionState
from limpet.stores.base import Answered, Attached, Claim, Claimed, Status
from limpet.stores.shared.commit import Commit, CommitFate, Reply, merged
from limpet.stores.shared.draft import SharedDocument
from limpet.stores.shared.numbers import Counter
from limpet.testing import VirtualClock
from limpet.testing.store.bench import KEY, PRINCIPAL, record, tag_of
from tests import dicts
from tests.dicts import DictStore, Shelves

ROUNDS: Final = 6
"""The first rounds let both replicas learn that the other one writes: from then on their commits name what they have read."""
LIMITS: Final = Limits(running=3, queued=0)


class Replica(DictStore):
    """A replica whose commits wait for a turn, and arrive twice."""

    way: asyncio.Lock | None = None
    """A commit takes it on its way."""

    @override
    async def commit(self, key: str, commit: Commit) -> Reply:
        if self.way is not None:
            async with self.way:
                pass
        await asyncio.sleep(0)
        await super().commit(key, commit)
        return await super().commit(key, commit)


async def _pair(clock: VirtualClock | None = None) -> tuple[Replica, Replica]:
    shelves, clock = Shelves(), clock or VirtualClock()
    one, two = Replica(LIMITS, clock, shelves), Replica(LIMITS, clock, shelves)
    assert await one.open(record(), evict=False) == []
    return one, two


async def _status(store: DictStore) -> Status:
    status = await store.look(KEY)
    assert status is not None
    return status


async def _claims(*wanted: tuple[DictStore, int, str]) -> list[tuple[DictStore, str, int]]:
    """Claim at once; return the claims that were granted."""
    found = await asyncio.gather(
        *(store.claim(KEY, PRINCIPAL, Claim(number, stream, b"")) for store, number, stream in wanted)
    )
    return [
        (store, stream, one.fence)
        for (store, _, stream), one in zip(wanted, found, strict=True)
        if isinstance(one, Claimed)
    ]


async def _settle(claims: list[tuple[DictStore, str, int]]) -> None:
    await asyncio.gather(*(store.settle(KEY, stream, fence, None) for store, stream, fence in claims))


async def an_id_is_claimed_once() -> None:
    one, two = await _pair()
    for number in range(ROUNDS):
        claims = await _claims((one, number, f"a{number}"), (two, number, f"b{number}"))
        assert len(claims) == 1
        await _settle(claims)


async def calls_stay_below_their_limit() -> None:
    one, two = await _pair()
    for number in range(ROUNDS):
        wanted = [(one, 2 * n, f"a{number}.{n}") for n in range(2)]
        wanted += [(two, 2 * n + 1, f"b{number}.{n}") for n in range(2)]
        claims = await _claims(*wanted)
        assert len(claims) == 3
        await _settle(claims)


async def calls_and_readers_are_counted() -> None:
    one, two = await _pair()
    for number in range(ROUNDS):
        claims = await _claims((one, 1, f"a{number}"), (two, 2, f"b{number}"))
        status = await _status(one)
        assert (status.running, status.readers) == (2, 2)
        await _settle(claims)
        status = await _status(two)
        assert (status.running, status.readers) == (0, 0)


async def a_session_with_a_reader_is_not_detached() -> None:
    one, two = await _pair()
    for number in range(ROUNDS):
        reader = await one.attach(KEY, PRINCIPAL, None, None)
        assert isinstance(reader, Attached)
        one.way = asyncio.Lock()
        async with one.way:
            # The commit of the break is made before the claim, and arrives after it.
            leaving = asyncio.create_task(
                one.detach(KEY, record().standalone, reader.generation, None, broke=True)
            )
            claims = await _claims((two, 1, f"b{number}"))
        await leaving
        one.way = None
        assert (await _status(one)).state is SessionState.ATTACHED
        await _settle(claims)


async def a_call_ends_while_a_reader_stays() -> None:
    clock = VirtualClock()
    one, two = await _pair(clock)
    # The sweep finds a reader, so the session is not due before the end of its lifetime.
    assert isinstance(await one.attach(KEY, PRINCIPAL, None, None), Attached)
    clock.advance(record().idle + 1)
    assert await one.sweep() == []

    async def later(claim: tuple[DictStore, str, int]) -> None:
        clock.advance(0.001)
        await _settle([claim])

    for number in range(ROUNDS):
        claims = await _claims((one, 1, f"a{number}"), (two, 2, f"b{number}"))
        await asyncio.gather(*(later(claim) for claim in claims))
        assert (await _status(one)).running == 0


async def the_first_answer_counts() -> None:
    one, two = await _pair()
    for number in range(ROUNDS):
        assert await one.ask(KEY, f"q{number}", record().standalone)
        answers = [
            store.answer(KEY, PRINCIPAL, f"q{number}", name, name)
            for store, name in ((one, b"1"), (two, b"2"))
        ]
        assert sorted([found.name for found in await asyncio.gather(*answers)]) == sorted(
            [Answered.CONFLICT.name, Answered.FIRST.name]
        )
        await one.withdraw(KEY, f"q{number}")


async def events_of_both_are_kept_in_order() -> None:
    one, two = await _pair()
    for number in range(ROUNDS):
        events = [
            store.append(KEY, "", -1, [(tag_of(name, number), f"{name}{number}".encode())])
            for store, name in ((one, "a"), (two, "b"))
        ]
        positions = await asyncio.gather(*events)
        assert sorted(position.seq for position in positions) == [2 * number + 1, 2 * number + 2]
    reader = await one.attach(KEY, PRINCIPAL, None, None)
    assert isinstance(reader, Attached)
    page = await two.read(KEY, record().standalone, reader.cursor, 100, 1 << 20)
    assert page is not None
    assert len({event.data for event in page.events}) == len(page.events) == 2 * ROUNDS


SCENES: Final[dict[str, Callable[[], Awaitable[None]]]] = {
    scene.__name__.replace("_", " "): scene
    for scene in (
        an_id_is_claimed_once,
        calls_stay_below_their_limit,
        calls_and_readers_are_counted,
        a_session_with_a_reader_is_not_detached,
        a_call_ends_while_a_reader_stays,
        the_first_answer_counts,
        events_of_both_are_kept_in_order,
    )
}


def broken_scenes() -> list[str]:
    """Return the scenes that fail."""

    async def play(scene: Callable[[], Awaitable[None]]) -> bool:
        try:
            async with asyncio.timeout(30):
                await scene()
        except (AssertionError, KeyError, TimeoutError):
            return False
        return True

    return [name for name, scene in SCENES.items() if not asyncio.run(play(scene))]


# Mistakes: what is patched, and with what

Mistake = tuple[object, str, Any]


def _compare_nothing(self: SharedDocument, commit: Commit, *rest: Any) -> None:
    _CONDITIONS(self, commit, *rest)
    commit.compare = {}


def _without_tests(commit: Commit, stored: bytes) -> bytes | None:
    given = commit.conditions
    return merged(replace(commit, conditions=[0.0, *given[1 + 3 * int(given[0]) :]]), stored)


_CONDITIONS: Final = SharedDocument._add_conditions

FIELDS_NOT_COMPARED: Final[Mistake] = SharedDocument, "_add_conditions", _compare_nothing
TESTS_NOT_REPEATED: Final[Mistake] = dicts, "merged", _without_tests
NUMBERS_OVERWRITTEN: Final[Mistake] = dicts, "merged", lambda commit, stored: commit.after  # noqa: ARG005
NEVER_SENT_BEFORE: Final[Mistake] = dicts, "fate", lambda commit, last: CommitFate.APPLY  # noqa: ARG005
READERS_NOT_TESTED: Final[Mistake] = Counter, "__bool__", lambda self: self.value > 0
