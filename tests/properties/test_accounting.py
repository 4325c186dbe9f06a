"""The memory store's counters are right, under any order of operations and every repeated command."""

from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Position
from limpet.errors import LimpetError
from limpet.stores.base import Attached, Claim, Claimed
from limpet.stores.memory import MemoryStore
from limpet.stores.memory.backend import MemoryDocument
from limpet.testing import VirtualClock
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from limpet.testing.store.limits import tight

T = TypeVar("T")

LIMITS: Final = tight(
    running=3, queued=2, asks=3, stream_events=5, stream_bytes=200, session_bytes=500, streams_bytes=700,
    finished_streams=3, state_bytes=200,
)  # fmt: skip
SESSIONS: Final = (KEY, "second")
KEYS: Final = st.sampled_from(SESSIONS)
STREAMS: Final = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])
ASKS: Final = st.sampled_from(["1", "2", "3", "4", "5"])
SIZES: Final = st.integers(0, 250)


def done(step: Coroutine[Any, Any, T]) -> T:
    """Run a step of the memory store, which never waits, so it is atomic."""
    try:
        step.send(None)
    except StopIteration as stopped:
        result: T = stopped.value
        return result
    raise AssertionError("a step of the memory store waited")


class Accounting(RuleBasedStateMachine):
    attachments = Bundle("attachments")

    @initialize(isolate=st.booleans())
    def begin(self, isolate: bool) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(LIMITS, self.clock)
        self.fences: dict[tuple[str, str], int] = {}
        self.tags = 0
        for key in SESSIONS:
            done(
                self.store.open(record(key, isolate=isolate, grace=1e9, idle=1e9, lifetime=1e9), evict=False)
            )

    def tag(self) -> int:
        self.tags += 1
        return self.tags

    @rule(
        key=KEYS,
        stream=STREAMS,
        request_id=st.integers(1, 3),
        control=st.booleans(),
        digest=st.binary(max_size=1),
    )
    def claim(self, key: str, stream: str, request_id: int, control: bool, digest: bytes) -> None:
        claimed = done(self.store.claim(key, PRINCIPAL, Claim(request_id, stream, digest, control)))
        if isinstance(claimed, Claimed):
            self.fences[key, stream] = claimed.fence

    @rule(key=KEYS, stream=STREAMS, size=st.none() | SIZES, keep=st.booleans(), twice=st.booleans())
    def settle(self, key: str, stream: str, size: int | None, keep: bool, twice: bool) -> None:
        fence, tag = self.fences.get((key, stream), 0), self.tag()
        for _ in range(1 + twice):
            try:
                done(
                    self.store.settle(
                        key, stream, fence, None if size is None else b"x" * size, tag=tag, keep=keep
                    )
                )
            except LimpetError:
                return

    @rule(key=KEYS, stream=STREAMS, request_id=st.integers(1, 3), size=SIZES)
    def keep(self, key: str, stream: str, request_id: int, size: int) -> None:
        if stream not in self.session(key).exchanges:
            claim = Claim(request_id, stream, b"")
            done(self.store.keep(key, stream, claim, b"x" * size, tag=self.tag()))

    @rule(key=KEYS, stream=STREAMS, size=SIZES, times=st.integers(1, 4))
    def append(self, key: str, stream: str, size: int, times: int) -> None:
        fence = self.fences.get((key, stream), 0)
        try:
            done(self.store.open_stream(key, stream, fence, self.tag()))
            for count in range(1, times + 1):
                events = [(self.tag(), b"x" * size) for _ in range(count)]
                done(self.store.append(key, stream, fence, events))
        except LimpetError:
            return

    @rule(key=KEYS, size=SIZES)
    def push(self, key: str, size: int) -> None:
        done(self.store.append(key, "", -1, [(self.tag(), b"x" * size)]))

    @rule(target=attachments, key=KEYS, stream=st.none() | STREAMS)
    def attach(self, key: str, stream: str | None) -> tuple[str, str, int, Position | None]:
        attached = done(self.store.attach(key, PRINCIPAL, stream, None))
        name = stream or record(key).standalone
        if not isinstance(attached, Attached):
            return key, name, 0, None
        return key, name, attached.generation, attached.cursor

    @rule(attachment=attachments, broke=st.booleans(), whole=st.booleans())
    def detach(self, attachment: tuple[str, str, int, Position | None], broke: bool, whole: bool) -> None:
        key, stream, generation, cursor = attachment
        log = self.session(key).logs.get(stream)
        if whole and log is not None:
            cursor = log.top
        done(self.store.detach(key, stream, generation, cursor, broke=broke))

    @rule(key=KEYS, stream=STREAMS, ask=ASKS)
    def ask(self, key: str, stream: str, ask: str) -> None:
        done(self.store.ask(key, ask, stream))

    @rule(key=KEYS, ask=ASKS, digest=st.binary(max_size=1))
    def answer(self, key: str, ask: str, digest: bytes) -> None:
        done(self.store.answer(key, PRINCIPAL, ask, digest, b"{}"))

    @rule(key=KEYS, ask=ASKS)
    def withdraw(self, key: str, ask: str) -> None:
        done(self.store.withdraw(key, ask))

    @rule(key=KEYS, field=st.sampled_from("xyz"), size=st.none() | st.integers(0, 120))
    def set_state(self, key: str, field: str, size: int | None) -> None:
        try:
            done(self.store.set_state(key, field, None if size is None else b"1" * size, op=str(self.tag())))
        except LimpetError:
            return

    def session(self, key: str) -> MemoryDocument:
        return self.store._sessions[key]

    @invariant()
    def counters_are_what_they_count(self) -> None:
        if not hasattr(self, "store"):
            return
        for key in SESSIONS:
            session = self.session(key)
            exchanges = session.exchanges.values()
            claims = [exchange for exchange in exchanges if exchange.running]
            assert session.running == len(claims)
            assert session.calls == sum(not claim.control for claim in claims) <= 5
            assert session.readers == sum(exchange.has_reader for exchange in exchanges)
            assert session.size == sum(log.bytes for log in session.logs.values())
            assert session.logs.keys() <= session.exchanges.keys()
            assert session.outstanding == sum(ask.answer is None for ask in session.asks.values())
            assert 0 <= session.outstanding <= LIMITS.asks
            if (state := session.state_fields) is not None:
                sizes = [len(name) + len(cell.value) for name, cell in state.cells.items()]
                assert state.bytes == sum(sizes) <= LIMITS.state_bytes
            self.finished_streams_are_those_that_ended(session)
        assert self.store._bytes == sum(self.session(key).size for key in SESSIONS)

    def finished_streams_are_those_that_ended(self, session: MemoryDocument) -> None:
        ended = {
            name
            for name, exchange in session.exchanges.items()
            if exchange.id is not None and not exchange.running
        }
        ends = ended - session.logs.keys()
        assert all(session.exchanges[name].kept and name in session.ids.values() for name in ends)
        ended -= ends
        assert set(session.finished) == ended
        unread = [name for name in ended if not session.exchanges[name].has_reader]
        assert len(ended) <= LIMITS.finished_streams or len(unread) < len(ended)
        assert all(session.exchanges[stream].id is not None for stream in session.ids.values())

    def teardown(self) -> None:
        """After any history, ending everything brings every counter back to zero."""
        if not hasattr(self, "store"):
            return
        for key in SESSIONS:
            session = self.session(key)
            for name, exchange in list(session.exchanges.items()):
                if exchange.running:
                    done(self.store.settle(key, name, exchange.fence, None))
                else:
                    done(self.store.detach(key, name, exchange.generation, None, broke=True))
            assert (session.running, session.calls, session.readers) == (0, 0, 0)
            for ask in list(session.asks):
                done(self.store.withdraw(key, ask))
            assert session.outstanding == 0
            done(self.store.close(key, SessionInput.SHUTDOWN))
        assert (self.store._bytes, self.store._principals, self.store._subscribers) == (0, {}, {})


TestAccounting = Accounting.TestCase
TestAccounting.settings = settings(stateful_step_count=80)
