"""Mistakes that others have made, or that we could: each a small patch that puts it back.

A bug is a context in which the mistake is there. It names what must find it: scenarios of the
simulation with the invariant that breaks, a scene of two replicas, one test, or the contract of stores.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from math import inf
from typing import Any, Final
from unittest.mock import patch

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.lifecycle import SessionInput
from limpet.core.rules import calls
from limpet.core.rules.document import Document, ExchangeRecord
from limpet.core.rules.state import FieldChange
from limpet.core.stream import Log, NewEvents, Position, StreamPage
from limpet.engine import idempotency
from limpet.engine.delivery import Batch
from limpet.engine.exchange import SessionExchange
from limpet.engine.exchanges import Exchanges
from limpet.engine.reader import End, Reader
from limpet.engine.readers import Readers
from limpet.engine.stream_buffer import Append, StreamBuffer
from limpet.engine.wake import Wake
from limpet.engine.writer import LogWriter
from limpet.errors import Fenced
from limpet.fronts.http.decide import sessionless_posts as sessionless
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.read.request import RawRequest
from limpet.stores.base import (
    Answered,
    Attached,
    Claim,
    Claimed,
    Closed,
    Duplicate,
    Found,
    Refusal,
    WakeUp,
)
from limpet.stores.memory import MemoryStore
from limpet.stores.memory.state import MemoryState
from tests.bugbank import homes, replicas
from tests.bugbank.details import DETAILS
from tests.bugbank.rules import MISTAKES
from tests.simulation.cluster import Cluster
from tests.simulation.faults import FaultyStore

Patches = Callable[[], AbstractContextManager[None]]


class Bug(Struct, frozen=True):
    """One mistake."""

    patches: Patches
    scenario: str = ""
    """The simulation that finds it."""
    invariant: str = ""
    scene: str = ""
    """The scene of two replicas (`replicas.py`) that finds it."""
    test: str = ""
    """The test that finds it (`details.py`)."""
    origin: str = ""
    """Where the mistake was made: a trap of docs/traps.md, a law, or a commit of ours."""


def _with(*patches: tuple[object, str, Any]) -> Patches:
    @contextmanager
    def patched() -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, value in patches:
                stack.enter_context(patch.object(target, name, value))
            yield

    return patched


# Identity


def map_by_id() -> Patches:
    """Answers find their connection by the client's id, and a second request takes the first one's place."""
    by_id: dict[tuple[str, str], SessionExchange] = {}
    claim, first = MemoryStore.claim, Readers.first

    async def unchecked(self: MemoryStore, key: str, principal: str, wanted: Claim) -> Any:
        if (session := self._sessions.get(key)) is not None:
            session.ids.clear()
        return await claim(self, key, principal, wanted)

    async def misled(self: Readers, exchange: SessionExchange) -> Reader:
        found = by_id.setdefault((exchange.session.record.key, str(exchange.request.id)), exchange)
        return await first(self, found)

    return _with((MemoryStore, "claim", unchecked), (Readers, "first", misled))


def id_as_text() -> Patches:
    """1 and "1" are the same id."""
    claim = MemoryStore.claim

    async def textual(self: MemoryStore, key: str, principal: str, wanted: Claim) -> Any:
        return await claim(self, key, principal, replace(wanted, id=str(wanted.id)))

    return _with((MemoryStore, "claim", textual))


def not_scoped_to_session() -> Patches:
    """A stream is found by its name alone, whosever it is."""
    attach = MemoryStore.attach

    async def anywhere(
        self: MemoryStore, key: str, principal: str, stream: str | None, *rest: Any, **more: Any
    ) -> Attached | Refusal:
        for session in self._sessions.values():
            if stream in session.exchanges and key in self._sessions:
                return await attach(self, session.record.key, session.record.principal, stream, *rest, **more)
        return await attach(self, key, principal, stream, *rest, **more)

    async def read(self: MemoryStore, key: str, stream: str, *rest: Any) -> StreamPage | None:
        logs = [doc.logs[stream] for doc in self._sessions.values() if stream in doc.logs]
        return logs[0].read(*rest) if logs else None

    return _with((MemoryStore, "attach", anywhere), (MemoryStore, "read", read))


def principal_unchecked() -> Patches:
    """GET and DELETE check the session's id and not its principal."""
    find, attach = MemoryStore.find, Cluster.attach

    def owner(self: MemoryStore, key: str, principal: str) -> str:
        session = self._sessions.get(key)
        return session.record.principal if session else principal

    async def found(self: MemoryStore, key: str, principal: str) -> Found | None:
        return await find(self, key, owner(self, key, principal))

    async def attached(
        self: Cluster, key: str, principal: str, *rest: Any, **more: Any
    ) -> Attached | Refusal:
        return await attach(self, key, owner(self, key, principal), *rest, **more)

    return _with((MemoryStore, "find", found), (Cluster, "attach", attached))


# Streams


def replay_then_register() -> Patches:
    """First the old events, then the new ones; events that come between the two are lost."""
    take = Reader.take
    live: set[Reader] = set()

    async def replay_first(self: Reader) -> Batch | None:
        batch = await take(self)
        if batch is None and self not in live:
            live.add(self)
            await asyncio.sleep(0.02)
            top = await self._store.read(self.session.record.key, self.stream, self.cursor, 1_000, 1 << 20)
            if top is not None and top.events and not top.finished:
                self.cursor = top.events[-1].position
        return batch

    return _with((Reader, "take", replay_first))


def data_in_the_wake_up() -> Patches:
    """The wake-up brings the message: only the newest one arrives, and a lost wake-up is a lost message."""
    take = Reader.take

    async def newest(self: Reader) -> Batch | None:
        batch = await take(self)
        if batch is None:
            return None
        return msgspec.structs.replace(batch, messages=batch.messages[-1:], positions=batch.positions[-1:])

    return _with((Reader, "take", newest))


def no_fence() -> Patches:
    """A replica that once claimed an exchange may always write to it."""

    def writable(self: Document, stream: str, fence: int) -> ExchangeRecord:
        exchange = self.exchanges.get(stream)
        if exchange is None:
            raise Fenced
        return exchange

    return _with((Document, "writable", writable))


def no_tag() -> Patches:
    """A position is a number: it proves nothing about the log it was read from."""

    def proves(self: Log, cursor: Position) -> bool:
        return 0 <= cursor.seq <= self.top.seq

    return _with((Log, "proves", proves))


def append_sent_again() -> Patches:
    """Events whose reply was lost are there twice."""

    async def append(self: Cluster, key: str, stream: str, fence: int, events: NewEvents) -> Position:
        *others, (tag, data) = events
        log = self._sessions[key].logs.get(stream) if key in self._sessions else None
        if log is not None and log.events and log.top.tag == tag:
            tag += 1
        return await MemoryStore.append(self, key, stream, fence, [*others, (tag, data)])

    return _with((Cluster, "append", append))


def end_before_messages() -> Patches:
    """The end of an exchange does not wait for the messages that are on their way to the store."""
    store = StreamBuffer.store

    async def only_in_the_task(self: StreamBuffer, append: Append, wake: Wake) -> None:
        if self._task is asyncio.current_task():
            await store(self, append, wake)

    return _with((StreamBuffer, "store", only_in_the_task))


def messages_reordered() -> Patches:
    """The messages of one append are in another order than they were sent."""
    store = StreamBuffer.store

    async def reordered(self: StreamBuffer, append: Append, wake: Wake) -> None:
        self._waiting.reverse()
        await store(self, append, wake)

    return _with((StreamBuffer, "store", reordered))


def lost_attach_forgotten() -> Patches:
    """A reader that the store has attached, and whose reply was lost, stays."""

    async def forgotten(_: Readers, _key: str, _stream: str | None) -> None:
        """Do nothing."""

    return _with((Readers, "_undo", forgotten))


def fatal_write() -> Patches:
    """A write that fails ends the session."""
    detach = Readers.detach

    async def fatal(self: Readers, reader: Reader) -> None:
        await detach(self, reader)
        if reader.end is End.BROKE:
            await self._sessions.close(reader.session, SessionInput.SHUTDOWN)

    return _with((Readers, "detach", fatal))


# State, asks, calls


def whole_payload() -> Patches:
    """A counter is read, changed and written back."""

    async def add(self: FaultyStore, area: str, field: str, by: int, *, op: str) -> int:
        cell = await self._look("get_state", area, field)
        total = (int(cell.value) if cell else 0) + by
        await self._change("set_state", area, field, b"%d" % total, op=op)
        return total

    return _with_new((FaultyStore, "add_state", add))


def state_sent_again() -> Patches:
    """An addition whose reply was lost counts twice."""
    change_state = MemoryState.change_state

    async def change(self: MemoryState, area: str, wanted: FieldChange) -> int:
        if wanted.by is not None:
            self._fields(area).results.pop(wanted.op, None)
        return await change_state(self, area, wanted)

    return _with((MemoryState, "change_state", change))


def check_then_claim() -> Patches:
    """Whether an id is free is asked first; it is claimed afterwards."""

    async def claim(
        self: FaultyStore, key: str, principal: str, wanted: Claim
    ) -> Claimed | Duplicate | Refusal:
        found = await self._change("would_claim", key, principal, wanted)
        if not isinstance(found, Claimed):
            return found  # type: ignore[no-any-return]
        result: Claimed = await self._change("force_claim", key, principal, wanted)
        return result

    async def would_claim(self: Cluster, key: str, principal: str, wanted: Claim) -> Any:
        session = self._sessions.get(key)
        if session is None or session.record.principal != principal:
            return Refusal.NO_SESSION
        taken = session.ids.get(wanted.id)
        if taken is not None:
            return Duplicate(taken, same=False, finished=False, has_reader=True)
        return Claimed(session.record, 0, returned=False)

    async def force_claim(self: Cluster, key: str, principal: str, wanted: Claim) -> Any:
        if (session := self._sessions.get(key)) is not None:
            session.ids.pop(wanted.id, None)
        return await self.claim(key, principal, wanted)

    return _with_new(
        (FaultyStore, "claim", claim),
        (Cluster, "would_claim", would_claim),
        (Cluster, "force_claim", force_claim),
    )


def last_answer_wins() -> Patches:
    """A second answer to an ask takes the first one's place."""
    answer = MemoryStore.answer

    async def again(
        self: MemoryStore, key: str, principal: str, ask: str, digest: bytes, payload: bytes
    ) -> Any:
        session = self._sessions.get(key)
        known = session.asks.get(ask) if session is not None else None
        if session is not None and known is not None and known.answer is not None and known.digest != digest:
            session.asks[ask] = replace(known, answer=payload, digest=digest)
            self.wake(WakeUp.ANSWER, key, ask)
            return Answered.AGAIN
        return await answer(self, key, principal, ask, digest, payload)

    return _with((MemoryStore, "answer", again))


def serial_receive_loop() -> Patches:
    """A session's messages are taken one after another: an answer waits for the call that waits for it."""
    in_session = HttpFront._in_session
    locks: dict[tuple[int, str], asyncio.Lock] = {}

    async def one_by_one(self: HttpFront, message: Any, body: bytes, head: RawRequest, *rest: Any) -> Any:
        # One for all replicas: as with a balancer that has sticky sessions.
        session = (id(asyncio.get_running_loop()), head.session_id)
        async with locks.setdefault(session, asyncio.Lock()):
            found = in_session(self, message, body, head, *rest)
            return await found if isinstance(found, Awaitable) else found

    return _with((HttpFront, "_in_session", one_by_one))


# Life


def unbounded_sessions() -> Patches:
    """There is always room for one more."""
    open_session = MemoryStore.open

    async def always(self: MemoryStore, record: Any, *, evict: bool) -> list[Closed] | Refusal:
        limits, self._limits = self._limits, replace(self._limits, sessions=1 << 40)
        try:
            return await open_session(self, record, evict=False)
        finally:
            self._limits = limits

    return _with((MemoryStore, "open", always))


def stale_detach() -> Patches:
    """The end of an old connection takes the place of the new one."""
    detach = Cluster.detach

    async def any_generation(
        self: Cluster, key: str, stream: str, generation: int, *rest: Any, **more: Any
    ) -> bool:
        session = self._sessions.get(key)
        exchange = session.exchanges.get(stream) if session else None
        return await detach(self, key, stream, exchange.generation if exchange else generation, *rest, **more)

    return _with((Cluster, "detach", any_generation))


def grace_by_timer() -> Patches:
    """The end of a grace is not checked again: a session whose client came back in time is closed nevertheless."""

    def due(self: Document) -> tuple[float, SessionInput]:
        ends = self.broke + self.record.grace if self.broke else inf
        return ends, SessionInput.GRACE_OVER

    return _with((Document, "due", due))


def forgotten_owner() -> Patches:
    """No replica ends the exchanges of dead ones."""

    async def none(self: Cluster) -> list[Any]:
        return []

    return _with((Cluster, "orphans", none))


def reaped_after_an_outage() -> Patches:
    """The first replica that reaches the store again declares all others dead."""

    def at_once(self: Cluster, owner: str) -> bool:
        return True

    return _with((Cluster, "_may_reap", at_once))


def lease_never_revived() -> Patches:
    """A replica whose lease has ended takes a new incarnation, and ends its own calls."""
    renew = Cluster.renew

    async def as_new(self: Cluster, seconds: float) -> Any:
        if 0.0 < self._leases.get(self._me.owner, 0.0) <= self.now():
            self._leases[self._me.owner] = 0.0
        return await renew(self, seconds)

    return _with((Cluster, "renew", as_new))


def _with_new(*patches: tuple[object, str, Any]) -> Patches:
    """As `_with`, for names that the target may not have."""

    @contextmanager
    def patched() -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, value in patches:
                stack.enter_context(patch.object(target, name, value, create=True))
            yield

    return patched


def break_forgotten_at_the_end() -> Patches:
    """The end of a plain call is not kept, although the break of its connection was noticed before."""

    def is_plain(self: LogWriter) -> bool:
        return self.position is None and self._buffer is None

    return _with((LogWriter, "is_plain", is_plain))


def started_for_no_client() -> Patches:
    """A request starts after its claim, although its client has left meanwhile."""
    begin = Exchanges.begin

    async def careless(self: Exchanges, exchange: SessionExchange) -> None:
        exchange.caller = replace(exchange.caller, waiter=None)
        await begin(self, exchange)

    return _with((Exchanges, "begin", careless))


# Rules and commits


def calls_without_a_limit() -> Patches:
    """A rule takes a call although the session has its limit of calls."""
    claim = calls.claim

    def claim_always(doc: Document, principal: str, wanted: Claim, me: str, most: int, now: float) -> object:
        return claim(doc, principal, wanted, me, 10 * most, now)

    return _with((calls, "claim", claim_always))


# Idempotency keys


def key_ignored() -> Patches:
    """A request with a key is served as one without."""
    return _with((sessionless, "has_key", lambda *_: False))


def key_for_any_request() -> Patches:
    """A key gives its answer also to a request with other arguments."""
    return _with((idempotency, "_check_same", lambda *_: None))


_MADE: Final[dict[str, Bug]] = {
    "an idempotency key is ignored": Bug(key_ignored(), "keys", "I4"),
    "an idempotency key for any request": Bug(key_for_any_request(), "keys", "I4"),
    "an end that is not kept after a break": Bug(break_forgotten_at_the_end(), "alone", "I4"),
    "a start although no client waits": Bug(started_for_no_client(), "takeover", "I4"),
    "answers mapped by the client's id": Bug(map_by_id(), "claim", "I3"),
    "ids compared as texts": Bug(id_as_text()),
    "streams not scoped to their session": Bug(not_scoped_to_session(), "log", "I3"),
    "principal unchecked on GET and DELETE": Bug(principal_unchecked(), "claim", "I10"),
    "replay, then register": Bug(replay_then_register(), "log", "I2"),
    "data in pub/sub": Bug(data_in_the_wake_up(), "log", "I2"),
    "no fence": Bug(no_fence(), "takeover", "I1"),
    "no tag": Bug(no_tag()),
    "append not safe to send again": Bug(append_sent_again(), "log", "I2"),
    "the end overtakes messages": Bug(end_before_messages(), "log", "I2"),
    "messages of an append reordered": Bug(messages_reordered(), "log", "I2"),
    "session removed at the first write error": Bug(fatal_write(), "log", "I8"),
    "whole payload read and written": Bug(whole_payload(), "claim", "I5"),
    "state not safe to send again": Bug(state_sent_again(), "claim", "I5"),
    "check, then claim": Bug(check_then_claim(), "claim", "I4"),
    "the last answer wins": Bug(last_answer_wins(), "answer", "I6"),
    "serial receive loop": Bug(serial_receive_loop(), "answer", "I7"),
    "unbounded sessions": Bug(unbounded_sessions()),
    "detach without generation": Bug(stale_detach(), "grace", "I8"),
    "a lost attach is not given back": Bug(lost_attach_forgotten(), "grace", "I8"),
    "grace not looked at again": Bug(grace_by_timer(), "grace", "I8"),
    "others declared dead after an outage": Bug(reaped_after_an_outage(), "outage", "G11"),
    "a lease that ended is lost": Bug(lease_never_revived(), "outage", "G11"),
    "no replica reaps": Bug(forgotten_owner(), "takeover", "I1"),
    "a former home starts calls": Bug(homes.FORMER_HOME, "home", "I4"),
    "a home that stops takes calls": Bug(homes.STARTED_WHILE_STOPPING, "home", "G11"),
    "a dead home stays the home": Bug(homes.NEVER_TAKEN, "home", "G11"),
    "calls without a limit": Bug(calls_without_a_limit()),
    "a commit that compares no field": Bug(
        _with(replicas.FIELDS_NOT_COMPARED), scene="an id is claimed once"
    ),
    "a commit that repeats no test": Bug(
        _with(replicas.TESTS_NOT_REPEATED), scene="calls stay below their limit"
    ),
    "a commit that tests no number of readers": Bug(
        _with(replicas.READERS_NOT_TESTED), scene="a session with a reader is not detached"
    ),
    "a commit that overwrites numbers": Bug(
        _with(replicas.NUMBERS_OVERWRITTEN), scene="calls and readers are counted"
    ),
    "a commit that is applied twice": Bug(_with(replicas.NEVER_SENT_BEFORE), scene="the first answer counts"),
}
_ORIGINS: Final = {
    "an idempotency key is ignored": "trap 46",
    "an idempotency key for any request": "ours, f70389c5",
    "an end that is not kept after a break": "ours, 8b31dacd",
    "a start although no client waits": "ours, db425102",
    "answers mapped by the client's id": "traps 1 and 9, CVE-2026-25536",
    "ids compared as texts": "trap 6",
    "streams not scoped to their session": "trap 20",
    "principal unchecked on GET and DELETE": "trap 43",
    "replay, then register": "traps 25 and 27",
    "data in pub/sub": "trap 19",
    "no fence": "law 3",
    "no tag": "trap 22",
    "append not safe to send again": "law 4",
    "the end overtakes messages": "ours, 54b7c02a",
    "messages of an append reordered": "law 5",
    "session removed at the first write error": "trap 14",
    "whole payload read and written": "trap 7",
    "state not safe to send again": "law 11",
    "check, then claim": "trap 2",
    "the last answer wins": "trap 8",
    "serial receive loop": "trap 45",
    "unbounded sessions": "traps 33 and 34",
    "detach without generation": "ours, 17b20a17",
    "a lost attach is not given back": "law 6",
    "grace not looked at again": "trap 39",
    "others declared dead after an outage": "ours, f5fd3afd",
    "a lease that ended is lost": "ours, f5fd3afd",
    "no replica reaps": "law 3",
    "a former home starts calls": "ours, 6321a7f2",
    "a home that stops takes calls": "ours, 6e264e09",
    "a dead home stays the home": "ours, 510fa57c",
    "calls without a limit": "law 9",
    "a commit that compares no field": "trap 2",
    "a commit that repeats no test": "trap 2",
    "a commit that tests no number of readers": "law 13",
    "a commit that overwrites numbers": "trap 7",
    "a commit that is applied twice": "law 4",
}
BUGS: Final[dict[str, Bug]] = {
    **{name: replace(bug, origin=_ORIGINS[name]) for name, bug in _MADE.items()},
    **{name: Bug(one.patches, origin=one.origin) for name, one in MISTAKES.items()},
    **{name: Bug(one.patches, origin=one.origin, test=one.test) for name, one in DETAILS.items()},
}
