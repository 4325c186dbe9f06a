"""The Redis store against the memory store: for every sequence of commands both answer the same, also when a command is sent twice."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from holdfast.core.lifecycle import SessionInput
from holdfast.core.stream import NewEvents, Position
from holdfast.errors import HoldfastError
from holdfast.stores.base import LINGER_SECONDS, Attached, Claim, Claimed, Closed, Store, WakeUp
from holdfast.stores.memory import MemoryStore
from holdfast.stores.redis.store import RedisStore
from holdfast.testing import VirtualClock
from holdfast.testing.store.bench import KEY, PRINCIPAL, STRANGER, record
from holdfast.testing.store.limits import tight
from tests.redis_server import needs_redis, redis_server

pytestmark = needs_redis

LIMITS: Final = tight(
    sessions=3, sessions_per_principal=2, running=3, queued=1, asks=3, stream_events=5, stream_bytes=200,
    finished_streams=3, state_bytes=120, subscriptions=2,
)  # fmt: skip
KEYS: Final = st.sampled_from([KEY, "second", "third", "fourth"])
WHO: Final = st.sampled_from([PRINCIPAL, PRINCIPAL, PRINCIPAL, STRANGER])
STREAMS: Final = st.sampled_from(["a", "b", "c", "d", "e"])
IDS: Final[st.SearchStrategy[int | str]] = st.sampled_from([1, 2, "1", "x"])
ASKS: Final = st.sampled_from(["a.1", "a.2", "b.1", "b.2"])
SIZES: Final = st.integers(0, 120)
NAMESPACES: Final = count()

Operation = Callable[[Store], Coroutine[Any, Any, Any]]


class Twins(RuleBasedStateMachine):
    url: ClassVar[str]
    attachments = Bundle("attachments")

    @initialize(isolate=st.booleans(), grace=st.sampled_from([0.0, 5.0]))
    def begin(self, isolate: bool, grace: float) -> None:
        self.runner = asyncio.Runner()
        self.clock = VirtualClock()
        self.fields = {"isolate": isolate, "grace": grace, "idle": 20.0, "lifetime": 60.0}
        self.fences: dict[tuple[str, str], int] = {}
        self.numbers = count(1)
        self.wakeups: list[list[tuple[WakeUp, str, str]]] = [[], []]
        self.runner.run(self.make())

    async def make(self) -> None:
        redis = RedisStore(self.url, LIMITS, self.clock, namespace=f"twin{next(NAMESPACES)}")
        self.stores: list[Store] = [MemoryStore(LIMITS, self.clock), redis]
        self.stores[0].bind(lambda what, key, name: self.wakeups[0].append((what, key, name)))
        # Without the ear and the second look, which `bind` would start: one replica needs neither.
        redis._on_wake = lambda what, key, name: self.wakeups[1].append((what, key, name))

    def both(self, operation: Operation, *, exactly: bool = True) -> Any:
        """Send a command to both stores; results, exceptions and wake-ups are the same. A repeat may send a wake-up again."""
        # No two things happen at the same moment: which of two is older is then not a matter of luck.
        self.clock.advance(0.125)
        outcomes = [self.runner.run(self.outcome(operation, store)) for store in self.stores]
        assert outcomes[0] == outcomes[1]
        if exactly:
            assert self.wakeups[0] == self.wakeups[1]
        for rung in self.wakeups:
            rung.clear()
        return outcomes[0]

    async def outcome(self, operation: Operation, store: Store) -> Any:
        try:
            return _plain(await operation(store))
        except HoldfastError as error:
            return type(error).__name__

    @rule(key=KEYS, who=WHO, evict=st.booleans())
    def open(self, key: str, who: str, evict: bool) -> None:
        self.both(lambda store: store.open(record(key, who, **self.fields), evict=evict))

    @rule(key=KEYS, who=WHO)
    def find(self, key: str, who: str) -> None:
        self.both(lambda store: store.find(key, who))

    @rule(
        key=KEYS, level=st.none() | st.sampled_from(["debug", "info"]), initialized=st.none() | st.just(True)
    )
    def change(self, key: str, level: str | None, initialized: bool | None) -> None:
        self.both(lambda store: store.change(key, level=level, initialized=initialized))

    @rule(key=KEYS)
    def close(self, key: str) -> None:
        self.both(lambda store: store.close(key, SessionInput.DELETED))

    @rule(seconds=st.sampled_from([0.5, 3.0, 10.0, 25.0]))
    def sweep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        swept = [self.runner.run(self.swept(store)) for store in self.stores]
        assert swept[0] == swept[1]
        for rung in self.wakeups:
            rung.clear()

    async def swept(self, store: Store) -> list[Any]:
        return sorted((closed.record.key, closed.reason.value) for closed in await store.sweep())

    @rule(key=KEYS, uri=st.sampled_from(["u:1", "u:2", "u:3"]), wanted=st.booleans())
    def subscription(self, key: str, uri: str, wanted: bool) -> None:
        self.both(lambda store: store.subscribe(key, uri) if wanted else store.unsubscribe(key, uri))
        self.both(lambda store: _sorted(store.subscribers(uri)))

    @rule(
        key=KEYS,
        who=WHO,
        stream=STREAMS,
        name=IDS,
        digest=st.sampled_from([b"1", b"2"]),
        control=st.booleans(),
    )
    def claim(self, key: str, who: str, stream: str, name: int | str, digest: bytes, control: bool) -> None:
        wanted = Claim(name, stream, digest, control)
        claimed = self.both(lambda store: store.claim(key, who, wanted))
        if isinstance(claimed, Claimed):
            self.fences[key, stream] = claimed.fence

    @rule(key=KEYS, stream=STREAMS, size=st.none() | SIZES, keep=st.booleans(), twice=st.booleans())
    def settle(self, key: str, stream: str, size: int | None, keep: bool, twice: bool) -> None:
        fence, tag = self.fences.get((key, stream), 1), next(self.numbers)
        terminal = None if size is None else b"x" * size
        for _ in range(1 + twice):
            self.settled(key, stream, fence, terminal, tag, keep)

    def settled(
        self, key: str, stream: str, fence: int, terminal: bytes | None, tag: int, keep: bool
    ) -> None:
        self.both(lambda store: store.settle(key, stream, fence, terminal, tag=tag, keep=keep), exactly=False)

    @rule(key=KEYS, stream=STREAMS, name=IDS, size=SIZES)
    def keep(self, key: str, stream: str, name: int | str, size: int) -> None:
        tag = next(self.numbers)
        self.both(lambda store: store.keep(key, stream, Claim(name, stream, b"1"), b"x" * size, tag=tag))

    @rule(key=KEYS, who=WHO, name=IDS)
    def cancel(self, key: str, who: str, name: int | str) -> None:
        self.both(lambda store: store.cancel(key, who, name))

    @rule(
        key=KEYS,
        stream=STREAMS,
        size=SIZES,
        times=st.integers(1, 2),
        count=st.integers(1, 3),
        twice=st.booleans(),
    )
    def append(self, key: str, stream: str, size: int, times: int, count: int, twice: bool) -> None:
        fence, start = self.fences.get((key, stream), 1), next(self.numbers)
        self.both(lambda store: store.open_stream(key, stream, fence, start))
        for _ in range(times):
            events = [(next(self.numbers), b"x" * size) for _ in range(count)]
            self.appended(key, stream, fence, events, twice=twice)

    def appended(self, key: str, stream: str, fence: int, events: NewEvents, *, twice: bool) -> None:
        for _ in range(1 + twice):
            self.both(lambda store: store.append(key, stream, fence, events), exactly=False)

    @rule(key=KEYS, size=SIZES)
    def push(self, key: str, size: int) -> None:
        tag = next(self.numbers)
        self.both(lambda store: store.append(key, "", -1, [(tag, b"x" * size)]))

    @rule(
        target=attachments, key=KEYS, who=WHO, stream=st.none() | STREAMS, since=st.none() | st.integers(0, 3)
    )
    def attach(self, key: str, who: str, stream: str | None, since: int | None) -> Any:
        attached = self.both(lambda store: store.attach(key, who, stream, None, since=since))
        if not isinstance(attached, Attached):
            return multiple()
        return key, stream or attached.record.standalone, attached.generation, attached.cursor

    @rule(attachment=attachments, broke=st.booleans(), read=st.booleans(), forged=st.integers(0, 2))
    def detach(
        self, attachment: tuple[str, str, int, Position], broke: bool, read: bool, forged: int
    ) -> None:
        key, stream, generation, cursor = attachment
        page = self.both(lambda store: store.read(key, stream, cursor, 3, 150))
        if read and page is not None and page.events:
            cursor = page.events[-1].position
        self.both(lambda store: store.detach(key, stream, generation, cursor, broke=broke))
        wrong = Position(cursor.seq + forged, cursor.tag)
        self.both(lambda store: store.read(key, stream, wrong, 3, 150))

    @rule(key=KEYS, ask=ASKS)
    def ask(self, key: str, ask: str) -> None:
        self.both(lambda store: store.ask(key, ask, ask[0]))

    @rule(key=KEYS, who=WHO, ask=ASKS, digest=st.sampled_from([b"1", b"2"]))
    def answer(self, key: str, who: str, ask: str, digest: bytes) -> None:
        self.both(lambda store: store.answer(key, who, ask, digest, b"{}"))
        self.both(lambda store: store.take_answer(key, ask))

    @rule(key=KEYS, ask=ASKS)
    def withdraw(self, key: str, ask: str) -> None:
        self.both(lambda store: store.withdraw(key, ask))

    @rule(
        key=KEYS,
        field=st.sampled_from("xy"),
        value=st.none() | st.sampled_from([b"1", b'"one"', b"x" * 80]),
        version=st.none() | st.integers(0, 3),
        twice=st.booleans(),
    )
    def set_state(self, key: str, field: str, value: bytes | None, version: int | None, twice: bool) -> None:
        op = str(next(self.numbers))
        for _ in range(1 + twice):
            self.both(lambda store: store.set_state(key, field, value, op=op, version=version))
        self.both(lambda store: store.get_state(key, field))

    @rule(key=KEYS, field=st.sampled_from("xy"), by=st.integers(-(2**40), 2**40), twice=st.booleans())
    def add_state(self, key: str, field: str, by: int, twice: bool) -> None:
        op = str(next(self.numbers))
        for _ in range(1 + twice):
            self.both(lambda store: store.add_state(key, field, by, op=op))
        self.both(lambda store: store.get_state(key, field))

    @invariant()
    def the_same_sessions_live(self) -> None:
        if hasattr(self, "stores"):
            self.both(lambda store: _sorted(store.sessions()))

    def teardown(self) -> None:
        """When all sessions have ended and their listeners were called, Redis has only streams that can be read for a moment."""
        if not hasattr(self, "stores"):
            return
        self.runner.run(self.end())
        self.runner.close()

    async def end(self) -> None:
        redis = self.stores[1]
        assert isinstance(redis, RedisStore)
        closed = [await redis.close(key, SessionInput.SHUTDOWN) for key in await redis.sessions()]
        for one in closed:
            assert one is not None
            await redis.closing_reported(one)
        client = await redis._link.subscriber()
        found = [key async for key in client.scan_iter(match=f"{redis._prefix}*") if not key.endswith(b"}:x")]
        left = [key for key in found if not 0 <= await client.pttl(key) <= LINGER_SECONDS * 1_000]
        await redis.aclose()
        assert set(left) <= {f"{redis._prefix}{{*}}:told".encode()}, left


def _plain(result: Any) -> Any:
    """Return the part of a result that can be compared: each store makes its own event ids."""
    if isinstance(result, Closed):
        return result.record, result.reason
    return [_plain(item) for item in result] if isinstance(result, list) else result


async def _sorted(found: Coroutine[Any, Any, list[str]]) -> list[str]:
    return sorted(await found)


class TestTwins(Twins.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def server(cls) -> Iterator[None]:
        with ExitStack() as stack:
            Twins.url = stack.enter_context(redis_server()).url
            yield
