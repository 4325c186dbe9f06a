"""One session of the memory store: its exchanges, ids, turns and asks."""

from collections import OrderedDict
from math import inf
from typing import Final

from holdfast.core.lifecycle import SessionState
from holdfast.core.stream import Log, Position
from holdfast.stores.base import (
    REMEMBERED_ANSWERS,
    REMEMBERED_SECONDS,
    Answered,
    Claim,
    SessionRecord,
)
from holdfast.stores.memory.state import Cells
from holdfast.stores.rules import SessionClock, answered, remember_withdrawn
from holdfast.wire.jsonrpc import RequestId

_NONE: Final[frozenset[str]] = frozenset()


class MemoryExchange:
    """An exchange, or (without a claim) the standalone stream: its claim, its log once it has one, its reader."""

    __slots__ = ("asks", "claim", "fence", "generation", "has_reader", "kept", "log", "running", "word")

    def __init__(self, claim: Claim | None, fence: int) -> None:
        self.claim: Claim | None = claim
        self.fence: int = fence
        self.log: Log | None = None
        self.generation: int = 0
        # The POST that claims an exchange is its first reader.
        self.has_reader: bool = claim is not None
        self.running: bool = self.has_reader
        self.kept: bool = False
        self.word: int = 0
        self.asks: list[str] | None = None

    def start(self, position: Position) -> Log:
        """Return the log. If it does not exist yet, create it; it begins at `position`."""
        if self.log is None:
            self.log = Log(position)
        return self.log

    def left(self, cursor: Position | None) -> bool:
        """Note that the reader has left, at this position. Return True if a kept answer was delivered whole."""
        self.has_reader = False
        if cursor is None or self.log is None:
            return False
        self.log.delivered = max(self.log.delivered, cursor)
        if self.log.closed:
            self.log.pack()
        return self.kept and self.log.delivered == self.log.top

    def name(self, session: "MemorySession") -> str:
        """Return the stream's name."""
        return self.claim.stream if self.claim is not None else session.record.standalone


class Ask:
    """A request to the client, and its answer after it has arrived."""

    __slots__ = ("answer", "digest")

    def __init__(self) -> None:
        self.answer: bytes | None = None
        self.digest: bytes = b""


class MemorySession(SessionClock, Cells):
    """All data of one session. There may be 100,000 of them: collections that most sessions do not need are made late."""

    __slots__ = (
        "_answered", "asks", "broke", "calls", "exchanges", "fence", "finished", "held", "hint", "ids", "opened",
        "outstanding", "readers", "record", "running", "settled", "size", "state", "subscriptions", "touched", "withdrawn",
    )  # fmt: skip

    def __init__(self, record: SessionRecord, now: float) -> None:
        Cells.__init__(self, record.principal)
        self.record: SessionRecord = record
        self.state: SessionState = SessionState.ATTACHED
        self.opened: float = now
        self.touched: float = now
        self.hint: float = inf
        """The time at which `sweep` checks the session next. It is not later than the time at which the session is due."""
        self.settled: float = 0.0
        self.broke: float = 0.0
        self.fence: int = 0
        self.running: int = 0
        self.calls: int = 0
        self.readers: int = 0
        self.size: int = 0
        """The bytes of its streams."""
        self.exchanges: dict[str, MemoryExchange] = {}
        self.ids: dict[RequestId, str] = {}
        self.finished: dict[str, None] = {}
        self.held: dict[str, int] = {}
        """Calls that keep their turn after their end, with their fences."""
        self.asks: dict[str, Ask] = {}
        self._answered: OrderedDict[str, tuple[bytes, float]] | None = None
        """The digest of each answer whose ask is forgotten, and the time until which it is kept. Oldest first."""
        self.outstanding: int = 0
        self.subscriptions: frozenset[str] = _NONE
        self.withdrawn: dict[str, bool] | None = None
        """The streams that do not start, oldest first; True: it is certain that nothing of the exchange ran."""

    def standalone(self) -> MemoryExchange:
        """Return the standalone stream."""
        exchange = self.exchanges.get(self.record.standalone)
        if exchange is None:
            exchange = self.exchanges[self.record.standalone] = MemoryExchange(None, -1)
            exchange.start(Position(0, 0))
        return exchange

    def release(self, exchange: MemoryExchange) -> None:
        """Free the request id of an exchange, unless a later exchange uses the id."""
        exchange.kept = False
        claim = exchange.claim
        if claim is not None and self.ids.get(claim.id) == claim.stream:
            del self.ids[claim.id]
            if not self.ids:
                # An emptied dict keeps its memory otherwise, and most sessions are idle.
                self.ids.clear()

    def withdraw(self, stream: str, *, surely: bool) -> None:
        """Remember that an exchange does not start; `surely`: nothing of it ran."""
        self.withdrawn = self.withdrawn or {}
        remember_withdrawn(self.withdrawn, stream, surely=surely)

    def has_given_back(self, stream: str) -> bool:
        """Return True if nothing of an exchange ran, and it does not exist."""
        return (
            self.withdrawn is not None and self.withdrawn.get(stream, False) and stream not in self.exchanges
        )

    def has_settled(self, stream: str, fence: int, tag: int) -> bool:
        """Return True if the exchange has ended with this fence and this tag already."""
        exchange = self.exchanges.get(stream)
        log = exchange.log if exchange is not None and exchange.fence == fence else None
        return log is not None and log.closed and log.top.tag == tag

    def has_forgotten(self, stream: str, fence: int) -> bool:
        """Return True if an exchange was claimed in this session and is forgotten."""
        return stream not in self.exchanges and fence <= self.fence

    def first(self) -> str | None:
        """Return the call in flight with the smallest fence. None if there is no call, or an earlier call keeps its turn."""
        calls = [
            (exchange.fence, name)
            for name, exchange in self.exchanges.items()
            if exchange.running and exchange.claim is not None and not exchange.claim.control
        ]
        first = min(calls, default=None)
        if first is None or any(fence < first[0] for fence in self.held.values()):
            return None
        return first[1]

    def least_needed(self) -> str | None:
        """Return the finished stream to forget first: one that was delivered, else the oldest without a reader."""
        fallback = None
        for name in self.finished:
            exchange = self.exchanges[name]
            if exchange.has_reader or exchange.log is None:
                continue
            if exchange.log.delivered == exchange.log.top:
                return name
            fallback = fallback or name
        return fallback

    # Asks

    def add_ask(self, ask: str, stream: str) -> bool:
        """Register an ask of an exchange or of the session. Return False if the stream keeps too many answers."""
        exchange = self.standalone() if stream == self.record.standalone else self.exchanges.get(stream)
        if exchange is not None:
            asks = exchange.asks = exchange.asks or []
            if len(asks) >= REMEMBERED_ANSWERS and self._is_full(exchange, asks):
                return False
            exchange.asks.append(ask)
        self.asks[ask] = Ask()
        self.outstanding += 1
        return True

    def _is_full(self, exchange: MemoryExchange, asks: list[str]) -> bool:
        """Remove the names of withdrawn asks; return True if the stream keeps as many answers as it may."""
        exchange.asks = known = [name for name in asks if name in self.asks]
        return sum(self.asks[name].answer is not None for name in known) >= REMEMBERED_ANSWERS

    def drop_ask(self, ask: str, now: float) -> None:
        """Forget an ask and its answer. The digest of the answer is kept for REMEMBERED_SECONDS."""
        known = self.asks.pop(ask, None)
        if known is None:
            return
        if known.answer is None:
            self.outstanding -= 1
            return
        if self._answered is None:
            self._answered = OrderedDict()
        self._answered[ask] = known.digest, now + REMEMBERED_SECONDS
        if len(self._answered) > REMEMBERED_ANSWERS:
            self._answered.popitem(last=False)

    def forget_asks(self, exchange: MemoryExchange, now: float) -> None:
        """Forget all asks of an exchange that has ended."""
        if exchange.asks:
            for ask in exchange.asks:
                self.drop_ask(ask, now)
            exchange.asks = None

    def answered(self, ask: str, digest: bytes, now: float) -> Answered:
        """Compare an answer with the first answer of an ask that is forgotten."""
        while self._answered and next(iter(self._answered.values()))[1] <= now:
            self._answered.popitem(last=False)
        first = self._answered.get(ask) if self._answered else None
        if first is None:
            return Answered.UNKNOWN
        return answered(first[0], digest)
