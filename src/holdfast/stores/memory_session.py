"""One session inside the memory store: its exchanges and asks, and when it is due."""

from collections import OrderedDict
from math import inf

from holdfast.core.lifecycle import Input, State
from holdfast.core.stream import Log, Position
from holdfast.stores.base import REMEMBERED_ANSWERS, REMEMBERED_SECONDS, Answered, Claim, SessionRecord
from holdfast.stores.memory_state import Cells
from holdfast.wire.jsonrpc import RequestId


class Channel:
    """An exchange, or the standalone channel: who claimed it, its log once it has one, its reader."""

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
        self.asks: list[str] = []

    def start(self, position: Position) -> Log:
        """Return the log, begun at `position` if there was none."""
        if self.log is None:
            self.log = Log(position)
        return self.log

    def name(self, session: "Session") -> str:
        """Return the stream's name."""
        return self.claim.stream if self.claim is not None else session.record.standalone


class Ask:
    """A request to the client and, once it came, its answer."""

    __slots__ = ("answer", "digest")

    def __init__(self) -> None:
        self.answer: bytes | None = None
        self.digest: bytes = b""


class Session(Cells):
    """Everything of one session."""

    def __init__(self, record: SessionRecord, now: float) -> None:
        super().__init__()
        self.record = record
        self.state = State.ATTACHED
        self.opened: float = now
        self.touched: float = now
        self.hint = inf
        """When the store looks at it next."""
        self.settled: float = 0.0
        self.broke: float = 0.0
        self.fence = self.running = self.calls = self.readers = self.bytes = 0
        self.channels: dict[str, Channel] = {}
        self.ids: dict[RequestId, str] = {}
        self.finished: OrderedDict[str, None] = OrderedDict()
        self.held: dict[str, int] = {}
        """Calls that hold their turn beyond their end, and their fences."""
        self.asks: dict[str, Ask] = {}
        self._answered: OrderedDict[str, tuple[bytes, float]] = OrderedDict()
        """Digests of answers whose ask is forgotten, and until when: oldest first."""
        self.outstanding: int = 0
        self.subscriptions: set[str] = set()

    def standalone(self) -> Channel:
        """Return the channel of what belongs to no request."""
        channel = self.channels.get(self.record.standalone)
        if channel is None:
            channel = self.channels[self.record.standalone] = Channel(None, -1)
            channel.start(Position(0, 0))
        return channel

    def release(self, channel: Channel) -> None:
        """Free the request id of an exchange, unless a later one has it."""
        channel.kept = False
        claim = channel.claim
        if claim is not None and self.ids.get(claim.id) == claim.stream:
            del self.ids[claim.id]

    def has_settled(self, stream: str, fence: int, tag: int) -> bool:
        """Tell whether exactly this end of an exchange is written already."""
        channel = self.channels.get(stream)
        log = channel.log if channel is not None and channel.fence == fence else None
        return log is not None and log.closed and log.top.tag == tag

    def has_forgotten(self, stream: str, fence: int) -> bool:
        """Tell whether nothing is left of an exchange that was claimed here."""
        return stream not in self.channels and fence <= self.fence

    def due(self) -> tuple[float, Input]:
        """Return when the session ends if nothing happens before, and why. A reader keeps it from idling, not from ageing."""
        if self.state is State.DETACHED:
            ends = max(self.broke, self.settled) + self.record.grace, Input.GRACE_OVER
        elif self.readers:
            ends = inf, Input.IDLE
        else:
            ends = self.touched + self.record.idle, Input.IDLE
        expires = self.opened + self.record.lifetime
        return ends if ends[0] <= expires else (expires, Input.EXPIRED)

    def first(self) -> str | None:
        """Return the call whose turn it is: the one in flight with the smallest fence, unless an earlier one holds on."""
        calls = [
            (channel.fence, name)
            for name, channel in self.channels.items()
            if channel.running and channel.claim is not None and not channel.claim.control
        ]
        first = min(calls, default=None)
        if first is None or any(fence < first[0] for fence in self.held.values()):
            return None
        return first[1]

    def least_needed(self) -> str | None:
        """Return the finished stream to forget first: one that was delivered, else the oldest without a reader."""
        fallback = None
        for name in self.finished:
            channel = self.channels[name]
            if channel.has_reader or channel.log is None:
                continue
            if channel.log.delivered == channel.log.top:
                return name
            fallback = fallback or name
        return fallback

    # Asks

    def add_ask(self, ask: str, stream: str) -> None:
        """Register an ask of an exchange (or of none)."""
        self.asks[ask] = Ask()
        self.outstanding += 1
        channel = self.standalone() if stream == self.record.standalone else self.channels.get(stream)
        if channel is not None:
            channel.asks.append(ask)
            if len(channel.asks) > REMEMBERED_ANSWERS:
                self._drop_answered(channel)

    def _drop_answered(self, channel: Channel) -> None:
        for name in channel.asks:
            known = self.asks.get(name)
            if known is None or known.answer is not None:
                channel.asks.remove(name)
                self.asks.pop(name, None)
                return

    def drop_ask(self, ask: str, now: float) -> None:
        """Forget an ask; of an answer only its digest stays, for a while."""
        known = self.asks.pop(ask, None)
        if known is None:
            return
        if known.answer is None:
            self.outstanding -= 1
            return
        self._answered[ask] = known.digest, now + REMEMBERED_SECONDS
        if len(self._answered) > REMEMBERED_ANSWERS:
            self._answered.popitem(last=False)

    def forget_asks(self, channel: Channel, now: float) -> None:
        """Forget all asks of an exchange that has ended."""
        if channel.asks:
            for ask in channel.asks:
                self.drop_ask(ask, now)
            channel.asks.clear()

    def answered(self, ask: str, digest: bytes, now: float) -> Answered:
        """Return what an answer is to an ask that is no longer known."""
        while self._answered and next(iter(self._answered.values()))[1] <= now:
            self._answered.popitem(last=False)
        first = self._answered.get(ask)
        if first is None:
            return Answered.UNKNOWN
        return Answered.AGAIN if first[0] == digest else Answered.CONFLICT
