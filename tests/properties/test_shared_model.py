"""Two replicas over one backend beside the memory store, under any mix of commands: the same answers and wake-ups.

The backend is the one in dicts, so this tests the shared layer: drafts, commits, documents that another replica has changed. One of the
replicas sends each commit twice. `test_backends.py` compares the other backends with this one.
"""

import asyncio
from collections.abc import Coroutine
from itertools import cycle
from typing import Any, Final, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from typing_extensions import override

from limpet.core.lifecycle import SessionInput
from limpet.core.stream import NewEvents, Position
from limpet.errors import LimpetError
from limpet.stores.base import Attached, Claim, Claimed, Closed, Duplicate, Store, WakeUp
from limpet.stores.memory import MemoryStore
from limpet.stores.shared.commit import Commit, Done, Reply
from limpet.testing import VirtualClock
from limpet.testing.store.bench import record
from limpet.testing.store.limits import tight
from tests.dicts import DictReplica, Shelves

LIMITS: Final = tight(
    sessions=4,
    sessions_per_principal=2,
    subscriptions=2,
    running=3,
    queued=1,
    asks=2,
    stream_events=4,
    stream_bytes=60,
    session_bytes=100,
    streams_bytes=150,
    finished_streams=2,
)
# Mostly one session and its own principal: only accepted commands test much.
KEYS = st.sampled_from(["k0"] * 4 + ["k1", "k2"])
PRINCIPALS = st.sampled_from(["p"] * 4 + ["", "q"])
IDS = st.sampled_from([1, 2, "1"])
STREAMS = st.sampled_from(["s0", "s1", "s2", "s3", "s4"])
DATA = st.integers(0, 25).map(lambda size: b"x" * size)
TAGS = st.sampled_from([0, 1, 2, 2**63, 2**64 - 1])
EVENTS = st.lists(st.tuples(TAGS, DATA), min_size=1, max_size=3)
SECONDS = st.sampled_from([0.5, 1.0, 20.0, 49.0, 50.0, 99.0, 100.0, 300.0, 999.0])
REASONS = st.sampled_from([SessionInput.DELETED, SessionInput.SHUTDOWN])


def plain(value: object) -> object:
    """Return an answer without the names that each store makes by itself."""
    match value:
        case Closed():
            return value.record, value.reason
        case Claimed():
            return value.record, value.returned
        case list():
            return [plain(one) for one in value]
        case _:
            return value


class Fences(NamedTuple):
    """The fence of a claim in each store."""

    model: int
    store: int


class SendsTwice(DictReplica):
    """A replica whose commits arrive twice, as after a lost reply."""

    @override
    async def commit(self, key: str, commit: Commit) -> Reply:
        first = await super().commit(key, commit)
        again = await super().commit(key, commit)
        return again if isinstance(first, Done) else first


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.wakeups: tuple[list[tuple[WakeUp, str, str]], list[tuple[WakeUp, str, str]]] = ([], [])
        """Of the memory store, and of both replicas."""
        self.model = self.bound(MemoryStore(LIMITS, self.clock), 0)
        self.shelves = Shelves(LIMITS, self.clock)
        self.replicas = [self.replica(number) for number in (0, 1)]
        self.order = cycle([0])
        self.store = self.replicas[0]
        self.claims: dict[tuple[str, str], Claim] = {}
        self.claimed_at: dict[tuple[str, str], str] = {}
        """The replica that has claimed a stream."""
        self.fences: dict[tuple[str, str], Fences] = {}
        self.readers: dict[tuple[str, str], tuple[int, Position]] = {}
        self.positions = [Position(0, 0), Position(1, 7)]

    def replica(self, number: int) -> DictReplica:
        kind = (DictReplica, SendsTwice)[number]
        store: DictReplica = self.bound(kind(LIMITS, self.clock, self.shelves, f"replica{number}"), 1)
        return store

    def bound(self, store: Any, which: int) -> Any:
        store.bind(lambda *rung: self.wakeups[which].append(rung))
        return store

    def both(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Send a command to both stores; they must answer alike."""
        self.store = self.replicas[next(self.order)]
        here, there = ([one[which] if isinstance(one, Fences) else one for one in args] for which in (0, 1))
        expected = self.answer(getattr(self.model, name)(*here, **kwargs))
        found = self.answer(getattr(self.store, name)(*there, **kwargs))
        assert plain(found) == plain(expected)
        return found

    def answer(self, command: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.loop.run_until_complete(command)
        except LimpetError as error:
            return type(error), str(error)

    def teardown(self) -> None:
        self.loop.close()

    # Sessions

    @initialize(isolate=st.booleans(), order=st.lists(st.integers(0, 1), min_size=6, max_size=6))
    def first_sessions(self, isolate: bool, order: list[int]) -> None:
        self.order = cycle(order)
        self.both("open", record("k0", "p"), evict=False)
        self.both("open", record("k1", "q", isolate=isolate), evict=False)

    @rule(key=KEYS, principal=PRINCIPALS, isolate=st.booleans(), evict=st.booleans())
    def open(self, key: str, principal: str, isolate: bool, evict: bool) -> None:
        self.both("open", record(key, principal, isolate=isolate), evict=evict)

    @rule(key=KEYS, principal=PRINCIPALS)
    def find(self, key: str, principal: str) -> None:
        self.both("find", key, principal)

    @rule(key=KEYS, level=st.sampled_from([None, "debug"]), initialized=st.sampled_from([None, True]))
    def change(self, key: str, level: str | None, initialized: bool | None) -> None:
        self.both("change", key, level=level, initialized=initialized)

    @rule(key=KEYS, reason=REASONS, sure=st.integers(0, 3))
    def close(self, key: str, reason: SessionInput, sure: int) -> None:
        if not sure:
            self.both("close", key, reason)

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        closed = self.answer(self.store.sweep())
        expected = self.answer(self.model.sweep())
        assert sorted(map(str, plain(closed))) == sorted(map(str, plain(expected)))  # type: ignore[call-overload]

    @rule(key=KEYS, uri=st.sampled_from(["u1", "u2", "u3"]), wanted=st.booleans())
    def subscribe(self, key: str, uri: str, wanted: bool) -> None:
        self.both("subscribe" if wanted else "unsubscribe", key, uri)
        stores: tuple[Store, Store] = self.model, self.store
        found = [sorted(self.answer(store.subscribers(uri))) for store in stores]
        assert found[0] == found[1]

    # Exchanges and streams

    @rule(
        key=KEYS, principal=PRINCIPALS, request_id=IDS, stream=STREAMS, digest=st.sampled_from([b"1", b"2"]),
        control=st.booleans(),
    )  # fmt: skip
    def claim(
        self, key: str, principal: str, request_id: int | str, stream: str, digest: bytes, control: bool
    ) -> None:  # fmt: skip
        claim = Claim(request_id, stream, digest, control)
        if (key, stream) in self.claims:
            # A stream's name is minted once: the same name is the same request.
            claim = self.claims[key, stream]
        found, fences = self.claim_both(key, principal, claim)
        if isinstance(found, Claimed):
            self.claims[key, stream] = claim
            self.fences[key, stream] = fences
            self.readers[key, stream] = 0, Position(1, 7)

    def claim_both(self, key: str, principal: str, claim: Claim) -> tuple[Any, Fences]:
        """Claim in both stores. A call of the other replica cannot be claimed again, and the memory store has no other replica."""
        self.store = self.replicas[next(self.order)]
        expected = self.answer(self.model.claim(key, principal, claim))
        found = self.answer(self.store.claim(key, principal, claim))
        if isinstance(expected, Claimed) and isinstance(found, Duplicate):
            assert self.claimed_at[key, claim.stream] != self.store.replica
            assert (found.stream, found.same, found.finished) == (claim.stream, True, False)
            assert not expected.returned
        else:
            assert plain(found) == plain(expected)
        if isinstance(found, Claimed):
            self.claimed_at[key, claim.stream] = self.store.replica
        return found, Fences(getattr(expected, "fence", 0), getattr(found, "fence", 0))

    def claimed(self, data: st.DataObject) -> tuple[str, str, Fences]:
        (key, stream), fences = data.draw(st.sampled_from(sorted(self.fences.items())))
        return key, stream, fences if data.draw(st.integers(0, 9)) else Fences(2**60, 2**60)

    @precondition(lambda self: self.fences)
    @rule(data=st.data(), terminal=st.none() | DATA, tag=TAGS, keep=st.booleans())
    def settle(self, data: st.DataObject, terminal: bytes | None, tag: int, keep: bool) -> None:
        key, stream, fence = self.claimed(data)
        self.both("settle", key, stream, fence, terminal, tag=tag, keep=keep)

    @rule(stream=STREAMS, before=SECONDS, after=SECONDS, terminal=st.none() | DATA, broke=st.booleans())
    def work_for_a_while(
        self, stream: str, before: float, after: float, terminal: bytes | None, broke: bool
    ) -> None:
        """A session is looked at while it works, and again when it has ended."""
        claim = self.claims.setdefault(("k0", stream), Claim("while", stream, b""))
        found, fences = self.claim_both("k0", "p", claim)
        self.pass_time(before)
        if isinstance(found, Claimed):
            if broke:
                self.both("detach", "k0", stream, 0, None, broke=True)
            self.both("settle", "k0", stream, fences, terminal, tag=5)
        self.pass_time(after)

    @rule(key=KEYS, stream=STREAMS, request_id=IDS, data=DATA, tag=TAGS)
    def keep(self, key: str, stream: str, request_id: int | str, data: bytes, tag: int) -> None:
        """An answer is kept under the id that its stream was claimed for, if it was."""
        claim = self.claims.setdefault((key, stream), Claim(request_id, stream, b"1"))
        self.both("keep", key, stream, claim, data, tag=tag)

    @rule(key=KEYS, principal=PRINCIPALS, request_id=IDS)
    def cancel(self, key: str, principal: str, request_id: int | str) -> None:
        self.both("cancel", key, principal, request_id)

    @precondition(lambda self: self.fences)
    @rule(data=st.data(), tag=TAGS)
    def open_stream(self, data: st.DataObject, tag: int) -> None:
        key, stream, fence = self.claimed(data)
        self.remember(self.both("open_stream", key, stream, fence, tag))

    @precondition(lambda self: self.fences)
    @rule(data=st.data(), events=EVENTS)
    def append(self, data: st.DataObject, events: NewEvents) -> None:
        key, stream, fence = self.claimed(data)
        self.remember(self.both("append", key, stream, fence, events))

    @rule(key=KEYS, events=EVENTS)
    def append_standalone(self, key: str, events: NewEvents) -> None:
        self.remember(self.both("append", key, "", -1, events))

    def remember(self, position: object) -> None:
        if isinstance(position, Position) and position not in self.positions:
            self.positions.append(position)

    def cursor(self, data: st.DataObject) -> Position:
        position: Position = data.draw(st.sampled_from(self.positions))
        return position

    @rule(data=st.data(), key=KEYS, stream=STREAMS, events=st.integers(1, 5), size=st.integers(0, 60))
    def read(self, data: st.DataObject, key: str, stream: str, events: int, size: int) -> None:
        name = data.draw(st.sampled_from([stream, f"{key}-standalone"]))
        self.both("read", key, name, self.cursor(data), events, size)

    @rule(
        data=st.data(), key=KEYS, principal=PRINCIPALS, stream=st.none() | STREAMS,
        since=st.none() | st.integers(0, 3),
    )  # fmt: skip
    def attach(
        self, data: st.DataObject, key: str, principal: str, stream: str | None, since: int | None
    ) -> None:
        cursor = self.cursor(data) if data.draw(st.booleans()) else None
        found = self.both("attach", key, principal, stream, cursor, since=since)
        if isinstance(found, Attached):
            self.readers[key, stream or f"{key}-standalone"] = found.generation, found.cursor
            self.remember(found.cursor)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), broke=st.booleans())
    def detach(self, data: st.DataObject, broke: bool) -> None:
        (key, stream), (generation, cursor) = data.draw(st.sampled_from(sorted(self.readers.items())))
        moved = data.draw(st.sampled_from([None, cursor, *self.positions]))
        self.both("detach", key, stream, generation, moved, broke=broke)

    # Asks

    @rule(key=KEYS, ask=st.sampled_from(["a1", "a2", "a3"]), stream=STREAMS)
    def ask(self, key: str, ask: str, stream: str) -> None:
        self.both("ask", key, ask, stream if (key, stream) in self.fences else f"{key}-standalone")

    @rule(
        key=KEYS, principal=PRINCIPALS, ask=st.sampled_from(["a1", "a2", "a3"]),
        digest=st.sampled_from([b"1", b"2"]),
    )  # fmt: skip
    def answer_ask(self, key: str, principal: str, ask: str, digest: bytes) -> None:
        self.both("answer", key, principal, ask, digest, b"answer " + digest)
        self.both("take_answer", key, ask)

    @rule(key=KEYS, ask=st.sampled_from(["a1", "a2", "a3"]))
    def withdraw(self, key: str, ask: str) -> None:
        self.both("withdraw", key, ask)

    # Invariants

    @rule(number=st.integers(0, 1))
    def restart(self, number: int) -> None:
        """A replica that has forgotten all documents reads them again, which the next commands show."""
        self.loop.run_until_complete(self.replicas[number].aclose())
        self.replicas[number] = self.replica(number)

    @invariant()
    def every_wakeup_was_sent(self) -> None:
        assert set(self.wakeups[0]) <= set(self.wakeups[1])
        for rings in self.wakeups:
            rings.clear()

    @invariant()
    def the_same_sessions_live(self) -> None:
        alive = self.both("sessions")
        # A session that is opened later under the same key is another one, and knows no fence of this one.
        self.fences = {where: fences for where, fences in self.fences.items() if where[0] in alive}


TestReplicasBesideMemory = StoreMachine.TestCase
TestReplicasBesideMemory.settings = settings(max_examples=80, stateful_step_count=40, derandomize=True)
