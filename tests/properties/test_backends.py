"""Each backend beside the one in dicts, under any mix of commits of two writers: the same replies, sessions, logs, state and tasks.

`test_shared_model.py` compares sessions over the backend in dicts with those of the memory store, so both together compare every store with it.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Event, Position
from limpet.errors import LimpetError
from limpet.stores.base import LINGER_SECONDS
from limpet.stores.redis.store import RedisStore
from limpet.stores.shared.commit import (
    HOW,
    NUMBERS,
    PLACES,
    SET,
    Commit,
    Stale,
    pack,
    unpack,
)
from limpet.stores.shared.sessions import SharedSessions
from limpet.stores.shared.shelf import Erasure
from limpet.stores.sqlite import SqliteStore
from limpet.testing import VirtualClock
from limpet.testing.store.bench import PRINCIPAL, STRANGER, record
from limpet.testing.store.limits import tight
from tests.dicts import DictSession, DictStore
from tests.redis_server import needs_redis, redis_server
from tests.sqlite.support import store_path

LIMITS: Final = tight(
    state_bytes=40, handles=2, handles_per_principal=1, tasks=3, tasks_per_principal=2, task_bytes=20, tasks_bytes=30,
)  # fmt: skip
UNIQUE: Final = count(1)
NAMES: Final = st.sampled_from(["a:1", "a:2", "i:3"])
STREAMS: Final = st.sampled_from(["s", "t"])
VALUES: Final = st.sampled_from([b"", b"1", b"\x00\xff"])
COUNTED: Final = st.sampled_from(["calls", "size", "touched", "fence", "hint", "state"])
SMALL: Final = st.integers(-2, 4).map(float)
WRITERS: Final = st.sampled_from(["one.1/a", "two.1/b"])

Command = tuple[Any, ...]
"""The name of a method, and its arguments."""


def conditions(draw: Callable[..., Any]) -> list[float]:
    """Return tests and changes of numbers."""
    tests = draw(st.dictionaries(COUNTED, st.tuples(SMALL, SMALL), max_size=1))
    made: list[float] = [len(tests)]
    for name, bounds in tests.items():
        made += PLACES[name], *bounds
    for name, value in draw(st.dictionaries(COUNTED, SMALL, max_size=3)).items():
        made += PLACES[name], SET if name in tests else HOW[name], value
    return made


def commits(draw: Callable[..., Any], key: str, session: DictSession) -> Command:
    """Return a commit of a writer that knows the session more or less."""
    writer, fields = draw(WRITERS), session.fields
    last = int(fields.get(f"o:{writer}", 0))
    number, acknowledged = (
        last + draw(st.sampled_from([1, 1, 1, 2, 0, -1])),
        max(0, last - draw(st.integers(-1, 1))),
    )
    numbers = dict(zip(NUMBERS, unpack(session.numbers), strict=True))
    after = numbers | {"version": numbers["version"] + 1, "mark": float(next(UNIQUE)), "calls": draw(SMALL)}
    made = Commit(writer, number, acknowledged, b"", pack(*after.values()), life=1e4)
    if draw(st.booleans()):
        made.exact = session.numbers
    if draw(st.integers(0, 4)):
        wrong = draw(st.none() | NAMES)
        read = draw(st.lists(NAMES, min_size=1, unique=True))
        made.compare = {name: b"wrong" if name == wrong else fields.get(name) for name in read}
        made.conditions = conditions(draw)
    put: dict[str, bytes] = draw(st.dictionaries(NAMES, VALUES, max_size=2))
    made.put, made.delete = put, [name for name in draw(st.lists(NAMES, max_size=1)) if name not in put]
    made.drop = draw(st.lists(STREAMS, max_size=1))
    events: dict[str, list[Event]] = {}
    for stream in draw(st.lists(STREAMS, max_size=2, unique=True)):
        put[f"l:{stream}"] = b"head"
        top = 0 if stream in made.drop else max(session.logs[stream], default=0)
        added = range(top + 1, top + 1 + draw(st.integers(1, 3)))
        events[stream] = [Event(Position(seq, 2**64 - seq), b"x" * seq) for seq in added]
    made.events = events
    until = draw(st.dictionaries(STREAMS, st.integers(0, 6), max_size=1)).items()
    made.cut = {
        name: seq for name, seq in until if name not in made.drop and seq < max(session.logs[name], default=0)
    }
    return "commit", key, made


def reads(draw: Callable[..., Any], key: str, _: DictSession) -> Command:
    """Return a read of a log."""
    bounds = draw(st.integers(1, 3)), draw(st.integers(0, 12))
    return "piece", key, draw(STREAMS), draw(st.integers(-1, 9)), *bounds


def plain(reply: Any) -> Any:
    """Return a reply without the values that a backend has beside the fields, under names of its own."""
    return (reply.numbers, named(reply.fields)) if isinstance(reply, Stale) else reply


def named(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (fields or {}).items() if name[1:2] == ":" and name[0] != "z"}


async def commit_both(data: st.DataObject, model: DictStore, store: SharedSessions) -> None:
    """Send the same commits and reads to both, then the end of the session."""
    key = f"k{next(UNIQUE)}"
    begun = record(key), pack(*(float(place) for place, _ in enumerate(NUMBERS))), {"a:1": b"1"}
    assert (await model.create(*begun), await store.create(*begun)) == (True, True)
    session = model.shelves.sessions[key]
    for make in data.draw(st.lists(st.sampled_from([commits, commits, commits, reads]), max_size=12)):
        name, *args = make(data.draw, key, session)
        for _ in range(data.draw(st.sampled_from([1, 1, 2]))):
            assert plain(await getattr(store, name)(*args)) == plain(await getattr(model, name)(*args))
        stored = await store.stored(key)
        assert stored is not None
        assert (stored.numbers, named(stored.fields)) == (session.numbers, session.fields)
        for stream in ("s", "t"):
            assert list(await store.sizes(key, stream)) == list(await model.sizes(key, stream))
    left = {stream: b"left" for stream in data.draw(st.lists(STREAMS, unique=True)) if session.logs[stream]}
    for exact in (b"other", session.numbers, session.numbers):
        parts: tuple[Any, ...] = (
            exact,
            SessionInput.DELETED,
            record(key),
            f"{key}.end",
            left,
            {},
            10,
            [],
            [],
            [],
        )
        assert await store.remove(key, Erasure(*parts)) == await model.remove(key, Erasure(*parts))
    for stream in ("s", "t"):
        assert await store.piece(key, stream, 0, 9, 99) == await model.piece(key, stream, 0, 9, 99)


# State and tasks

HANDLES: Final = st.sampled_from(["h1", "h2", "h3"])
AREAS: Final = st.just("session") | HANDLES
FIELDS: Final = st.sampled_from(["f", "g"])
OPS: Final = st.sampled_from(["o1", "o2", "o3", "o4"])
DATA: Final = st.integers(0, 25).map(lambda size: b"x" * size) | st.just(b"7")
WHO: Final = st.sampled_from([PRINCIPAL, PRINCIPAL, STRANGER])
TASKS: Final = st.sampled_from(["t1", "t2", "t3", "t4"])
CELLS: Final = st.one_of(
    st.tuples(st.just("open_area"), HANDLES, WHO, st.sampled_from([10.0, 200.0])),
    st.tuples(st.just("find_area"), HANDLES, WHO),
    st.tuples(st.just("get_state"), AREAS, FIELDS),
    st.tuples(st.just("set_state"), AREAS, FIELDS, st.none() | DATA, OPS, st.none() | st.integers(0, 3)),
    st.tuples(st.just("add_state"), AREAS, FIELDS, st.integers(-(2**40), 2**40), OPS),
    st.tuples(st.just("open_task"), TASKS, WHO, DATA),
    st.tuples(st.just("get_task"), TASKS, WHO),
    st.tuples(st.just("set_task"), TASKS, WHO, DATA, st.integers(1, 3), st.sampled_from([5.0, 60.0])),
    st.tuples(st.just("advance"), st.sampled_from([1.0, 20.0])),
)


async def sent(store: Any, command: Command, prefix: str) -> Any:
    """Send a command for state or tasks. The names are those of one example."""
    name, first, *rest = command
    first = prefix + first
    try:
        match name:
            case "set_state":
                field, value, op, version = rest
                return await store.set_state(first, field, value, op=op, version=version)
            case "add_state":
                return await store.add_state(first, *rest[:2], op=rest[2])
            case "open_task":
                return await store.open_task(first, *rest, ttl=30.0)
            case "set_task":
                who, value, version, ttl = rest
                return await store.set_task(first, who, value, version=version, ttl=ttl)
            case _:
                return await getattr(store, name)(first, *rest)
    except LimpetError as error:
        return type(error), str(error)


async def change_both(
    data: st.DataObject, model: DictStore, store: SharedSessions, clock: VirtualClock
) -> None:
    """Send the same commands for state and tasks to both."""
    prefix = f"{next(UNIQUE)}."
    for one in (model, store):
        assert await one.open(record(f"{prefix}session"), evict=False) == []
        assert await one.subscribe(f"{prefix}session", "u:1")
    try:
        for command in data.draw(st.lists(CELLS, max_size=20)):
            if command[0] == "advance":
                clock.advance(command[1])
            else:
                assert await sent(store, command, prefix) == await sent(model, command, prefix), command
    finally:
        for one in (model, store):
            await one.close(f"{prefix}session", SessionInput.DELETED)
            assert await one.subscribers("u:1") == []
        # Handles and tasks of the next example find room.
        clock.advance(300)
        for one in (model, store):
            await one.sweep()


Play = Callable[[st.DataObject, DictStore, Any, VirtualClock], Coroutine[Any, Any, None]]


def compare(open_store: Callable[[VirtualClock], Any], play: Play) -> None:
    """Play examples on one store; each has names of its own."""
    clock = VirtualClock()
    with asyncio.Runner() as runner:
        store, model = open_store(clock), DictStore(LIMITS, clock)

        @settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
        @given(data=st.data())
        def examples(data: st.DataObject) -> None:
            runner.run(play(data, model, store, clock))

        try:
            examples()
        finally:
            runner.run(store.aclose())


async def play_commits(data: st.DataObject, model: DictStore, store: Any, _: VirtualClock) -> None:
    try:
        await commit_both(data, model, store)
    finally:
        # An example that was too long has left its session.
        for key, session in list(model.shelves.sessions.items()):
            why = session.numbers, SessionInput.DELETED, record(key), f"{key}.cut"
            for one in (store, model):
                await one.remove(key, Erasure(*why, {}, {}, 0, [], [], []))


@contextmanager
def opener(kind: str) -> Iterator[Callable[[VirtualClock], Any]]:
    if kind == "sqlite":
        with store_path() as path:
            yield lambda clock: SqliteStore(path, LIMITS, clock)
            check_file(str(path))
    else:
        with redis_server() as server:
            yield lambda clock: RedisStore(server.url, LIMITS, clock)
            check_keys(server.url)


SUMS: Final = {
    "SELECT sessions FROM total": "SELECT count(*) FROM session",
    "SELECT tasks FROM total": "SELECT count(*) FROM task",
    "SELECT task_bytes FROM total": "SELECT coalesce(sum(length(value)), 0) FROM task",
}
NONE: Final = [
    "SELECT sid FROM field EXCEPT SELECT sid FROM session",
    "SELECT sid FROM subscription EXCEPT SELECT sid FROM session",
    "SELECT sid FROM event EXCEPT SELECT sid FROM session EXCEPT SELECT sid FROM lingering",
    "SELECT area FROM cell EXCEPT SELECT name FROM area",
    "SELECT area FROM op EXCEPT SELECT name FROM area",
    "SELECT name FROM area WHERE due IS NULL EXCEPT SELECT key FROM session",
]


def check_file(path: str) -> None:
    """Every total of the file is the sum of its parts, and no row is left without its session."""
    connection = sqlite3.connect(path)
    try:
        for total, parts in SUMS.items():
            [found], [expected] = (connection.execute(query).fetchone() for query in (total, parts))
            assert found == expected, total
        for query in NONE:
            assert connection.execute(query).fetchall() == [], query
    finally:
        connection.close()


def check_keys(url: str) -> None:
    """No key is left of sessions that have ended, but the streams that can be read for a moment."""
    client = redis.Redis.from_url(url)
    try:
        keys = [key.decode() for key in client.scan_iter(match="lp:*")]
        # Closings wait for their listeners, and handles for their time.
        of_sessions = [
            key for key in keys if "{*}" not in key and not key.endswith("}:x") and ".h" not in key
        ]
        left = [key for key in of_sessions if not 0 <= int(client.pttl(key)) <= LINGER_SECONDS * 1_000]
        assert left == []
    finally:
        client.close()


@pytest.mark.parametrize("play", [play_commits, change_both], ids=["commits", "state and tasks"])
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("redis", marks=needs_redis)])
def test_a_backend_answers_as_the_one_in_dicts(kind: str, play: Play) -> None:
    with opener(kind) as open_store:
        compare(open_store, play)
