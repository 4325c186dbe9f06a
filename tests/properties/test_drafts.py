"""The rules of a session also work on drafts, as a store needs them that several replicas share (decision 21).

Two replicas apply a rule each to a draft of the same document. A draft notes the fields that its rule has read and written. The second
commit is refused if a field that its rule has read was written by the first, or if a test of a counter would come out differently;
then the rule is applied again. The result must be that of the two rules one after the other.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st
from typing_extensions import override

from holdfast.core.records import STANDALONE_FENCE, Claim
from holdfast.core.rules import asks, calls, readers, streams, turns
from holdfast.core.rules.document import At, Document
from holdfast.core.stream import Log
from holdfast.errors import HoldfastError
from holdfast.testing.store.bench import PRINCIPAL, record
from holdfast.testing.store.limits import tight

LIMITS: Final = tight(stream_events=3, stream_bytes=60, session_bytes=90, finished_streams=2, asks=2)
MOST: Final = 2
NOW: Final = 5.0
TABLES: Final = ("exchanges", "ids", "logs", "finished", "held", "asks")
VALUES: Final = ("record", "state", "fence", "subscriptions", "answered", "withdrawn")
COUNTERS: Final = ("running", "calls", "readers", "outstanding", "size", "kept")
TIMES: Final = ("touched", "settled", "broke")
NONE: Final = object()


def outcomes_of(counter: str, before: int, after: int) -> tuple[bool, ...]:
    """Return the outcomes of the tests that rules make of a counter."""
    match counter:
        case "calls":
            return (before >= MOST,)
        case "outstanding":
            return (before >= LIMITS.asks,)
        case "readers":
            return (after == 0,)
        case "size":
            return (after > LIMITS.session_bytes,)
        case _:
            return ()


class Noted(dict[Any, Any]):
    """A table that notes which fields were read; `all`: also which fields there are."""

    def __init__(self, fields: dict[Any, Any]) -> None:
        super().__init__(fields)
        self.first = dict(fields)
        self.read: set[Any] = set()
        self.all = False

    @override
    def __getitem__(self, name: Any) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    @override
    def __contains__(self, name: object) -> bool:
        self.read.add(name)
        return super().__contains__(name)

    @override
    def get(self, name: Any, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    @override
    def pop(self, name: Any, *default: Any) -> Any:
        self.read.add(name)
        return super().pop(name, *default)

    @override
    def __iter__(self) -> Iterator[Any]:
        self.all = True
        return super().__iter__()

    @override
    def items(self) -> Any:
        self.all = True
        return super().items()

    @override
    def values(self) -> Any:
        self.all = True
        return super().values()

    @override
    def __len__(self) -> int:
        self.all = True
        return super().__len__()

    def changes(self) -> dict[Any, Any]:
        """Return the fields that differ from the first ones, with their new values."""
        names = [*self.first, *(name for name in dict.keys(self) if name not in self.first)]
        now = {name: dict.get(self, name, NONE) for name in names}
        return {name: value for name, value in now.items() if not same(value, self.first.get(name, NONE))}


def facts_of(log: Log) -> tuple[Any, ...]:
    return log.low, log.top, log.delivered, log.bytes, log.closed, list(log.events)


def same(one: object, other: object) -> bool:
    if isinstance(one, Log) and isinstance(other, Log):
        return facts_of(one) == facts_of(other)
    return one is other or one == other


class Draft(Document):
    """A document that a rule may change, and that notes what the rule has read."""

    def __init__(self, base: Document) -> None:
        self.numbers_read: set[str] = set()
        super().__init__(base.record, base.opened)
        for name in Document.__slots__:
            if name not in TABLES:
                setattr(self, name, copy.copy(getattr(base, name)))
        for name in TABLES:
            fields = getattr(base, name)
            # A rule changes a log itself, so it gets a copy.
            copied = {key: copy.deepcopy(one) for key, one in fields.items()} if name == "logs" else fields
            setattr(self, name, Noted(copied))
            getattr(self, name).first = {key: copy.deepcopy(one) for key, one in fields.items()}
        self.numbers_read.clear()

    @override
    def __getattribute__(self, name: str) -> Any:
        if name in VALUES or name in COUNTERS:
            object.__getattribute__(self, "numbers_read").add(name)
        return object.__getattribute__(self, name)


def table(doc: Document, name: str) -> Noted:
    found: Noted = getattr(doc, name)
    return found


def is_stale(base: Document, before: Document, draft: Draft) -> bool:
    """Return True if the draft's rule has read something that has changed since then."""
    for name in TABLES:
        noted, now = table(draft, name), getattr(base, name)
        if noted.all and list(now) != list(noted.first):
            return True
        names = {*noted.read, *noted.changes(), *(noted.first if noted.all else ())}
        if any(not same(now.get(one, NONE), noted.first.get(one, NONE)) for one in names):
            return True
    read = set(draft.numbers_read)
    if any(getattr(base, name) != getattr(before, name) for name in read.intersection(VALUES)):
        return True
    for name in read.intersection(COUNTERS):
        was, now = getattr(before, name), getattr(base, name)
        change = getattr(draft, name) - was
        if outcomes_of(name, was, was + change) != outcomes_of(name, now, now + change):
            return True
    return False


def commit(base: Document, before: Document, draft: Draft) -> None:
    """Apply the changes of a draft."""
    for name in TABLES:
        now = getattr(base, name)
        for key, value in table(draft, name).changes().items():
            if value is NONE:
                del now[key]
            else:
                now[key] = value
    for name in VALUES:
        if getattr(draft, name) != getattr(before, name):
            setattr(base, name, getattr(draft, name))
    for name in COUNTERS:
        setattr(base, name, getattr(base, name) + getattr(draft, name) - getattr(before, name))
    for name in TIMES:
        setattr(base, name, max(getattr(base, name), getattr(draft, name)))
    base.hint = min(base.hint, draft.hint)


class Wanted(NamedTuple):
    """The arguments of a rule. Fences and positions are those of the document that it is applied to."""

    stream: str
    me: str
    tag: int
    data: bytes
    flag: bool
    number: int

    @property
    def at(self) -> At:
        return At(NOW, self.me, LIMITS, spare=1 << 30)

    @property
    def ask(self) -> str:
        return f"{self.stream}.{self.number}"


def fence_of(doc: Document, wanted: Wanted) -> int:
    exchange = dict.get(doc.exchanges, wanted.stream)
    return exchange.fence if exchange is not None else 1


def claim(doc: Document, w: Wanted) -> Any:
    return calls.claim(doc, PRINCIPAL, Claim(w.number, w.stream, w.data[:1]), w.me, MOST, NOW)


def detach(doc: Document, w: Wanted) -> Any:
    exchange, log = dict.get(doc.exchanges, w.stream), dict.get(doc.logs, w.stream)
    generation = exchange.generation if exchange is not None else 0
    whole = log.top if log is not None and w.flag else None
    return readers.detach(doc, w.stream, generation, whole, NOW, broke=w.flag)


def append(doc: Document, w: Wanted) -> Any:
    return streams.append(doc, w.stream, fence_of(doc, w), [(w.tag, w.data)], w.at)


def settle(doc: Document, w: Wanted) -> Any:
    return calls.settle(doc, w.stream, fence_of(doc, w), w.data, w.at, tag=w.tag, keep=w.flag)


RULES: Final[tuple[Callable[[Document, Wanted], Any], ...]] = (
    claim,
    claim,
    settle,
    append,
    detach,
    lambda doc, w: calls.end_plain(doc, w.stream, fence_of(doc, w), NOW),
    lambda doc, w: streams.open_stream(doc, w.stream, fence_of(doc, w), w.tag),
    lambda doc, w: streams.append(doc, "", STANDALONE_FENCE, [(w.tag, w.data)], w.at),
    lambda doc, w: readers.attach(doc, PRINCIPAL, w.stream, None, None, w.me, NOW),
    lambda doc, w: asks.ask(doc, w.ask, w.stream, w.me, LIMITS.asks),
    lambda doc, w: asks.answer(doc, PRINCIPAL, w.ask, b"d", w.data, NOW),
    lambda doc, w: asks.withdraw(doc, w.ask, NOW),
    lambda doc, w: turns.hold_turn(doc, w.stream, fence_of(doc, w), w.me),
    lambda doc, w: turns.pass_turn(doc, w.stream, fence_of(doc, w)),
    lambda doc, w: calls.give_back(doc, w.stream, fence_of(doc, w) if w.flag else 0, NOW),
    lambda doc, w: calls.reap(doc, w.stream, w.me, w.data, w.at, tag=w.tag),
)
WANTED: Final = st.builds(
    Wanted,
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["one.1", "two.1"]),
    st.integers(1, 1 << 30),
    st.binary(max_size=40),
    st.booleans(),
    st.integers(1, 3),
)
STEPS: Final = st.tuples(st.sampled_from(RULES), WANTED)
Step = tuple[Callable[[Document, Wanted], Any], Wanted]


def outcome(step: Step, doc: Document) -> Any:
    """Return the result of a rule, or the kind of its error."""
    apply, wanted = step
    try:
        return apply(doc, wanted)
    except HoldfastError as error:
        return type(error)


def everything(doc: Document) -> dict[str, Any]:
    """Return a document as values to compare: all but its hint, which may differ."""
    names = [name for name in Document.__slots__ if name not in {"logs", "hint", "told"}]
    return {"logs": {name: facts_of(log) for name, log in doc.logs.items()}} | {
        name: getattr(doc, name) for name in names
    }


def _wanted(stream: str, number: int, *, flag: bool = True) -> Wanted:
    return Wanted(stream, "one.1", number, b"", flag, number)


@example(  # The last reader breaks while another request brings a reader: the session is not detached.
    [(claim, _wanted("a", 1))], (claim, _wanted("b", 2)), (detach, _wanted("a", 1))
)
@given(history=st.lists(STEPS, max_size=12), one=STEPS, two=STEPS)
def test_two_drafts_of_one_document_have_the_effect_of_two_steps(
    history: list[Step], one: Step, two: Step
) -> None:
    base = Document(record(), 0.0)
    for step in history:
        outcome(step, base)
    expected = copy.deepcopy(base)
    results = [outcome(one, expected), outcome(two, expected)]
    before = copy.deepcopy(base)
    first, second = Draft(base), Draft(base)
    found = [outcome(one, first), outcome(two, second)]
    commit(base, before, first)
    if is_stale(base, before, second):
        between = copy.deepcopy(base)
        second = Draft(base)
        found[1] = outcome(two, second)
        commit(base, between, second)
    else:
        commit(base, before, second)
    assert everything(base) == everything(expected)
    assert found == results
