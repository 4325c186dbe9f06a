"""The SQLite store beside the memory store, under any mix of commands: the same answers, wake-ups and remains."""

import asyncio
import sqlite3
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.lifecycle import SessionInput
from holdfast.core.stream import NewEvents, Position
from holdfast.errors import HoldfastError
from holdfast.stores.base import Attached, Claim, Claimed, Closed, Duplicate, Store, WakeUp
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import VirtualClock
from holdfast.testing.store.bench import record
from holdfast.testing.store.limits import tight
from tests.sqlite.support import store_path

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
    state_bytes=40,
    handles=2,
    handles_per_principal=1,
    tasks=3,
    tasks_per_principal=2,
    task_bytes=20,
    tasks_bytes=30,
)
# Mostly one session and its own principal: only accepted commands test much.
KEYS = st.sampled_from(["k0"] * 4 + ["k1", "k2"])
PRINCIPALS = st.sampled_from(["p"] * 4 + ["", "q"])
IDS = st.sampled_from([1, 2, "1"])
STREAMS = st.sampled_from(["s0", "s1", "s2", "s3", "s4"])
DATA = st.integers(0, 25).map(lambda size: b"x" * size)
TAGS = st.sampled_from([0, 1, 2, 2**63, 2**64 - 1])
EVENTS = st.lists(st.tuples(TAGS, DATA), min_size=1, max_size=3)
FIELDS = st.sampled_from(["f", "g"])
OPS = st.sampled_from(["", "o1", "o2", "o3"])
SECONDS = st.sampled_from([0.5, 1.0, 20.0, 49.0, 50.0, 99.0, 100.0, 300.0, 999.0])
REASONS = st.sampled_from([SessionInput.DELETED, SessionInput.SHUTDOWN])


def plain(value: object) -> object:
    """Return an answer without the names that each store makes by itself."""
    match value:
        case Closed():
            return value.record, value.reason
        case list():
            return [plain(one) for one in value]
        case _:
            return value


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.path = self.stack.enter_context(store_path())
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.wakeups: tuple[list[tuple[WakeUp, str, str]], list[tuple[WakeUp, str, str]]] = ([], [])
        self.model = self.bound(MemoryStore(LIMITS, self.clock), 0)
        self.store = self.bound(SqliteStore(self.path, LIMITS, self.clock), 1)
        self.claims: dict[tuple[str, str], Claim] = {}
        self.before_restart: set[tuple[str, str]] = set()
        """Streams that were claimed before the last restart."""
        self.fences: dict[tuple[str, str], int] = {}
        self.readers: dict[tuple[str, str], tuple[int, Position]] = {}
        self.positions = [Position(0, 0), Position(1, 7)]
        self.versions = [0]

    def bound(self, store: Any, which: int) -> Any:
        store.bind(lambda *rung: self.wakeups[which].append(rung))
        return store

    def both(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Send a command to both stores; they must answer alike."""
        expected = self.answer(getattr(self.model, name)(*args, **kwargs))
        found = self.answer(getattr(self.store, name)(*args, **kwargs))
        assert plain(found) == plain(expected)
        return found

    def answer(self, command: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.loop.run_until_complete(command)
        except HoldfastError as error:
            return type(error), str(error)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.store.aclose())
        self.loop.close()
        self.stack.close()

    # Sessions

    @initialize(isolate=st.booleans())
    def first_sessions(self, isolate: bool) -> None:
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
        for rings in self.wakeups:
            rings.sort(key=str)

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
        found = self.claim_both(key, principal, claim)
        if isinstance(found, Claimed):
            self.claims[key, stream] = claim
            self.fences[key, stream] = found.fence
            self.readers[key, stream] = 0, Position(1, 7)

    def claim_both(self, key: str, principal: str, claim: Claim) -> Any:
        """Claim in both stores. Calls from before a restart belong to another incarnation, which the memory store does not have."""
        expected = self.answer(self.model.claim(key, principal, claim))
        found = self.answer(self.store.claim(key, principal, claim))
        if isinstance(expected, Claimed) and isinstance(found, Duplicate):
            assert (key, claim.stream) in self.before_restart
            assert (found.stream, found.same, found.finished) == (claim.stream, True, False)
            assert not expected.returned
        else:
            assert plain(found) == plain(expected)
        return found

    def claimed(self, data: st.DataObject) -> tuple[str, str, int]:
        (key, stream), fence = data.draw(st.sampled_from(sorted(self.fences.items())))
        return key, stream, fence + data.draw(st.sampled_from([0] * 9 + [1]))

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
        found = self.claim_both("k0", "p", claim)
        self.pass_time(before)
        if isinstance(found, Claimed):
            if broke:
                self.both("detach", "k0", stream, 0, None, broke=True)
            self.both("settle", "k0", stream, found.fence, terminal, tag=5)
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

    # State and tasks

    @rule(name=st.sampled_from(["h1", "h2", "h3"]), principal=PRINCIPALS, ttl=st.sampled_from([10.0, 200.0]))
    def open_scope(self, name: str, principal: str, ttl: float) -> None:
        self.both("open_scope", name, principal, ttl)

    @rule(name=st.sampled_from(["h1", "h2", "h3"]), principal=PRINCIPALS)
    def find_scope(self, name: str, principal: str) -> None:
        self.both("find_scope", name, principal)

    @rule(
        data=st.data(), scope=KEYS | st.sampled_from(["h1", "h2"]), field=FIELDS, op=OPS,
        value=st.none() | DATA | st.just(b"7"),
    )  # fmt: skip
    def set_state(self, data: st.DataObject, scope: str, field: str, op: str, value: bytes | None) -> None:
        version = data.draw(st.none() | st.sampled_from(self.versions))
        found = self.both("set_state", scope, field, value, op=op, version=version)
        if isinstance(found, int) and found not in self.versions:
            self.versions.append(found)
        self.both("get_state", scope, field)

    @rule(scope=KEYS | st.sampled_from(["h1", "h2"]), field=FIELDS, by=st.integers(-9, 9), op=OPS)
    def add_state(self, scope: str, field: str, by: int, op: str) -> None:
        self.both("add_state", scope, field, by, op=op)
        self.both("get_state", scope, field)

    @rule(key=st.sampled_from(["t1", "t2", "t3", "t4"]), principal=PRINCIPALS, value=DATA)
    def open_task(self, key: str, principal: str, value: bytes) -> None:
        self.both("open_task", key, principal, value, ttl=30.0)

    @rule(
        key=st.sampled_from(["t1", "t2", "t3", "t4"]), principal=PRINCIPALS, value=DATA,
        version=st.integers(1, 3), ttl=st.sampled_from([5.0, 60.0]),
    )  # fmt: skip
    def set_task(self, key: str, principal: str, value: bytes, version: int, ttl: float) -> None:
        self.both("set_task", key, principal, value, version=version, ttl=ttl)
        self.both("get_task", key, principal)

    # Invariants

    @rule()
    def restart(self) -> None:
        """A store that is opened again knows everything, which the next commands show."""
        self.before_restart |= set(self.claims)
        self.loop.run_until_complete(self.store.aclose())
        self.store = self.bound(SqliteStore(self.path, LIMITS, self.clock), 1)

    @invariant()
    def the_same_wakeups_were_sent(self) -> None:
        assert self.wakeups[1] == self.wakeups[0]
        for rings in self.wakeups:
            rings.clear()

    @invariant()
    def the_same_sessions_live(self) -> None:
        self.both("sessions")

    @invariant()
    def every_total_is_the_sum_of_its_parts(self) -> None:
        connection = sqlite3.connect(self.path)
        try:
            for total, parts in SUMS.items():
                [found], [expected] = (connection.execute(query).fetchone() for query in (total, parts))
                assert found == expected, total
            for query in NONE:
                assert connection.execute(query).fetchall() == [], query
        finally:
            connection.close()


SUMS: Final = {
    "SELECT sessions FROM total": "SELECT count(*) FROM session",
    "SELECT bytes FROM total": "SELECT coalesce(sum(length(data)), 0) FROM event JOIN exchange USING (xid) WHERE sid > 0",
    "SELECT tasks FROM total": "SELECT count(*) FROM task",
    "SELECT task_bytes FROM total": "SELECT coalesce(sum(length(value)), 0) FROM task",
    "SELECT coalesce(sum(bytes), 0) FROM session": "SELECT coalesce(sum(bytes), 0) FROM exchange WHERE sid > 0",
    "SELECT coalesce(sum(running), 0) FROM session": "SELECT coalesce(sum(running), 0) FROM exchange",
    "SELECT coalesce(sum(readers), 0) FROM session": "SELECT count(reader) FROM exchange",
    "SELECT coalesce(sum(outstanding), 0) FROM session": "SELECT count(*) FROM ask WHERE answer IS NULL",
}
NONE: Final = [
    # Streams that a closed session left for its readers have a number below zero (`sqlite/lingering.py`).
    "SELECT sid FROM exchange EXCEPT SELECT sid FROM session EXCEPT SELECT -n FROM lingering",
    "SELECT sid FROM ask EXCEPT SELECT sid FROM session",
    "SELECT sid FROM subscription EXCEPT SELECT sid FROM session",
    "SELECT xid FROM event EXCEPT SELECT xid FROM exchange",
    "SELECT scope FROM cell EXCEPT SELECT name FROM scope",
    "SELECT scope FROM op EXCEPT SELECT name FROM scope",
    "SELECT name FROM scope WHERE due IS NULL EXCEPT SELECT key FROM session",
    "SELECT xid FROM exchange x WHERE bytes <> coalesce((SELECT sum(length(data)) FROM event e WHERE e.xid = x.xid), 0)",
    "SELECT xid FROM exchange x WHERE top - low <> (SELECT count(*) FROM event e WHERE e.xid = x.xid)",
]

TestSqliteBesideMemory = StoreMachine.TestCase
TestSqliteBesideMemory.settings = settings(stateful_step_count=40)
