"""The record of a run, from outside of the system: every claim, event, answer and end, in order."""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Final

import msgspec
from typing_extensions import override

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput
from limpet.core.rules.calls import claim as claim_rule
from limpet.core.stream import Event, Log
from limpet.ports import Clock
from limpet.stores.base import Answered, Claim, Claimed, Closed, Duplicate, Ending, Refusal, WakeUp
from limpet.stores.memory import MemoryStore
from limpet.stores.memory.backend import MemoryDocument
from tests.simulation.cluster import Cluster, Operation, ReplicaConnection
from tests.simulation.network import Call

Json = dict[str, Any]
_REFUSED: Final = 400


class Request:
    """One request of a client: its message and its answers."""

    def __init__(self, nonce: str, session: str, request_id: int | str) -> None:
        self.nonce = nonce
        self.session = session
        self.id = request_id
        self.posts = 0
        self.wires: list[Call] = []
        """The connections on which it was sent or resumed."""
        self.refusals: list[int] = []
        self.last_id = ""
        """The newest event id: with one, everything that follows is promised."""
        self.events: list[tuple[str, Json]] = []
        self.plain: list[Json] = []
        """Answers that came as one body."""
        self.gone = False
        """The session was."""

    @property
    def terminals(self) -> list[Json]:
        return [message for _, message in self.events if "method" not in message] + self.plain


class Ledger:
    """Everything that the invariants look at."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.requests: list[Request] = []
        self.starts: Counter[str] = Counter()
        """Handler starts by exchange."""
        self.started_at: defaultdict[str, set[str]] = defaultdict(set)
        """By exchange: the replicas where its handler started."""
        self.homes: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """By exchange: the replicas that claimed it, each with the home of the session at that moment."""
        self.claims: dict[str, tuple[str, Claim, str]] = {}
        """By stream: the session, the claim, and its replica."""
        self.runs: Counter[str] = Counter()
        """By request: how often its handler has started."""
        self.early: list[str] = []
        """Requests whose handler has started again before as many answers as starts were written."""
        self.unwanted: list[str] = []
        """Requests whose handler has started after all their connections had ended."""
        self.nonces: dict[str, str] = {}
        """By stream: the request that its handler was started for."""
        self.logs: defaultdict[tuple[str, str], list[tuple[Event, bool]]] = defaultdict(list)
        self.added: Counter[str] = Counter()
        self.adding: Counter[str] = Counter()
        self.values: dict[str, int] = {}
        self.first: dict[str, bytes] = {}
        """By ask: the answer that counted."""
        self.resolved: defaultdict[str, list[Any]] = defaultdict(list)
        """By nonce and number of an ask: the answer that its handler got."""
        self.asked: dict[str, str] = {}
        """By ask: nonce and number."""
        self.most_asks = 0
        self.closings: defaultdict[str, list[tuple[float, SessionInput]]] = defaultdict(list)
        self.deleted: set[str] = set()
        """Sessions whose own client asked for their end."""
        self.opened: dict[Call, str] = {}
        """Streams that clients have open now, and of which session."""
        self.disturbed: set[str] = set()
        """Replicas that have been stopped or cut off from the store."""
        self.told: Counter[str] = Counter()
        self.violations: list[str] = []
        self.trace: list[tuple[float, str]] = []

    def started(self, nonce: str) -> None:
        """Count the starts of a request, and the answers to it that the server had written before."""
        mine = [request for request in self.requests if request.nonce == nonce]
        written = sum(wire.is_written and wire.status != _REFUSED for one in mine for wire in one.wires)
        if self.runs[nonce] > written:
            self.early.append(nonce)
        if mine and all(self._has_left(request) for request in mine):
            self.unwanted.append(nonce)
        self.runs[nonce] += 1

    def _has_left(self, request: Request) -> bool:
        """True if every connection of a request was known to have ended, and its client has no event id to come back with."""
        gone = [wire.known_gone_at < self.now() for wire in request.wires]
        return bool(gone) and all(gone) and not request.last_id

    def violate(self, invariant: str, text: str) -> None:
        self.violations.append(f"{invariant}: {text} at {self.now():.3f}")

    def note(self, text: str) -> None:
        self.trace.append((self.now(), text))


class WatchedStore(MemoryStore):
    """The store of one process, with a record of every call and checks on it."""

    def __init__(self, limits: Limits, clock: Clock, ledger: Ledger) -> None:
        super().__init__(limits, clock)
        self.ledger = ledger
        self.limits = limits

    @property
    def writer(self) -> str:
        """The name of the process that calls, for the record."""
        return self.replica

    @override
    def claim_nowait(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        claimed = super().claim_nowait(key, principal, claim)
        self._watch(key, claim, claimed)
        return claimed

    @override
    async def apply(self, key: str, absent: Any, rule: Any, *args: Any, **more: Any) -> Any:
        result = await super().apply(key, absent, rule, *args, **more)
        if rule is claim_rule:
            self._watch(key, args[1], result)
        return result

    def _watch(self, key: str, claim: Claim, claimed: Claimed | Duplicate | Refusal) -> None:
        if isinstance(claimed, Claimed) and claim.stream not in self.ledger.claims:
            session = self._sessions[key]
            twins = [
                exchange
                for exchange in session.exchanges.values()
                if exchange.running and exchange.id is not None and _typed(exchange.id) == _typed(claim.id)
            ]
            if len(twins) > 1 and not session.record.isolate:
                self.ledger.violate("I4", f"{len(twins)} exchanges in flight under id {claim.id!r}")
            self.ledger.claims[claim.stream] = key, claim, self.writer
        kind = type(claimed).__name__ if not isinstance(claimed, Refusal) else claimed.name
        self.ledger.note(f"{self.writer} claims {claim.id!r} as {claim.stream[:6]}: {kind}")

    @override
    def applied(self, doc: MemoryDocument) -> None:
        for what, name, _ in doc.told:
            if what is WakeUp.STREAM and (log := doc.logs.get(name)) is not None:
                self._written(doc.record.key, name, log)
        super().applied(doc)

    def _written(self, key: str, name: str, log: Log) -> None:
        """Record the events that are new in a log."""
        known = self.ledger.logs[key, name]
        last = known[-1][0].position.seq if known else 0
        new = [event for event in log.events if event.position.seq > last]
        if new:
            known += [(event, log.closed and event.position == log.top) for event in new]
            end = " (last)" if log.closed else ""
            first = new[0].position.seq
            self.ledger.note(f"{self.writer} writes {name[:6]}.{first}-{log.top.seq}{end}")

    @override
    async def ask(self, key: str, ask: str, stream: str) -> bool:
        asked = await super().ask(key, ask, stream)
        outstanding = self._sessions[key].outstanding
        self.ledger.most_asks = max(self.ledger.most_asks, outstanding)
        if not 0 <= outstanding <= self.limits.asks:
            self.ledger.violate("I7", f"{outstanding} asks outstanding, {self.limits.asks} allowed")
        return asked

    @override
    async def answer(
        self, key: str, principal: str, ask: str, digest: bytes, payload: bytes
    ) -> Answered | Refusal:
        answered = await super().answer(key, principal, ask, digest, payload)
        if answered is Answered.FIRST:
            if ask in self.ledger.first:
                self.ledger.violate("I6", f"ask {ask} had two first answers")
            self.ledger.first[ask] = payload
        self.ledger.note(f"{self.writer} takes an answer to {ask[:6]}: {answered.name}")
        return answered

    @override
    def end_nowait(self, doc: MemoryDocument, reason: SessionInput, ending: Ending | None = None) -> Closed:
        key = doc.record.key
        self.ledger.values[key] = _counter(doc)
        self.ledger.closings[key].append((self.now(), reason))
        if reason is SessionInput.GRACE_OVER:
            self._check_grace(doc)
        self.ledger.note(f"{self.writer} closes {key[:6]}: {reason.value}")
        return super().end_nowait(doc, reason, ending)

    def _check_grace(self, session: MemoryDocument) -> None:
        if self.now() < max(session.broke, session.settled) + session.record.grace:
            self.ledger.violate("I8", "a session was closed before its grace was over")
        for wire, key in self.ledger.opened.items():
            actor = wire.node.actor
            if key == session.record.key and actor.is_alive and actor.name not in self.ledger.disturbed:
                self.ledger.violate(
                    "I8", f"a session was closed while its client was connected to {actor.name}"
                )

    def counters(self) -> dict[str, int]:
        """Return every session's counter, as it is or was at the end."""
        for key, session in self._sessions.items():
            self.ledger.values[key] = _counter(session)
        return self.ledger.values


def _counter(doc: MemoryDocument) -> int:
    cell = doc.state_fields.cells.get("n") if doc.state_fields is not None else None
    return msgspec.json.decode(cell.value, type=int) if cell is not None else 0


class WatchedCluster(WatchedStore, Cluster):
    """The shared store, with a record of every call and checks on it."""

    @property
    @override
    def writer(self) -> str:
        return self._me.owner

    @override
    async def serve(
        self,
        connection: ReplicaConnection,
        name: str,
        args: tuple[Any, ...],
        kwargs: Json,
        op: Operation | None,
    ) -> Any:
        session = self._sessions.get(args[0]) if name in _FOR_A_CLIENT else None
        if session is None or session.record.principal == args[1]:
            return await super().serve(connection, name, args, kwargs, op)
        before = _fingerprint(session)
        result = await super().serve(connection, name, args, kwargs, op)
        refused = result is None or result is Refusal.NO_SESSION
        if not refused or _fingerprint(session) != before:
            self.ledger.violate("I10", f"{name} of a stranger was {result!r}")
        return result

    @override
    async def claim(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        claimed = await super().claim(key, principal, claim)
        if isinstance(claimed, Claimed):
            self.ledger.homes[claim.stream].add((self._me.replica, claimed.record.home))
        return claimed


_FOR_A_CLIENT = frozenset({"find", "claim", "attach", "answer", "cancel"})


def _typed(request_id: int | str) -> tuple[type, int | str]:
    return type(request_id), request_id


def _fingerprint(session: MemoryDocument) -> object:
    exchanges = [
        (name, exchange.fence, exchange.generation, exchange.has_reader, exchange.running, exchange.kept)
        for name, exchange in session.exchanges.items()
    ]
    asks = [(name, ask.digest) for name, ask in session.asks.items()]
    fields = (session.state, session.touched, session.fence, session.readers, session.outstanding)
    return exchanges, asks, fields
