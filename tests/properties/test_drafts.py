"""Two replicas that change one session at the same time: the effect is that of the two rules one after the other (decision 21).

Each applies a rule to its own draft of the same stored session. The second commit is refused if a field that its rule has read was written by
the first, or if a test of a number comes out differently; then the rule is applied again.
"""

import copy
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from limpet.core.records import STANDALONE_FENCE, Claim
from limpet.core.rules import asks, calls, readers, streams, turns
from limpet.core.rules.document import At, Document
from limpet.errors import LimpetError
from limpet.stores.shared.commit import NUMBERS, Done, Stale, unpack
from limpet.stores.shared.draft import SharedDocument, opened
from limpet.stores.shared.heads import NeedsIndex
from limpet.stores.shared.tables import NeedsAll
from limpet.testing.store.bench import PRINCIPAL, record
from limpet.testing.store.limits import tight
from tests.dicts import DictSession

LIMITS: Final = tight(stream_events=3, stream_bytes=60, session_bytes=90, finished_streams=2, asks=2)
MOST: Final = 2
NOW: Final = 5.0
FREE: Final = {"version", "mark", "hint", "expires"}
"""Numbers that may differ."""


def known(doc: Document, table: str, name: str) -> Any:
    """Return a stored entry, without a note that it was read."""
    assert isinstance(doc, SharedDocument)
    return doc.tables[table].stored(name)


class Wanted(NamedTuple):
    """The arguments of a rule. Fences and positions are those of the document that it is applied to."""

    stream: str
    me: str
    tag: int
    data: bytes
    flag: bool
    number: int
    now: float = NOW

    @property
    def at(self) -> At:
        return At(self.now, self.me, LIMITS, spare=1 << 30)

    @property
    def ask(self) -> str:
        return f"{self.stream}.{self.number}"


def fence_of(doc: Document, wanted: Wanted) -> int:
    """Return the fence of an exchange; of one that has ended or never was, one that was given before."""
    exchange = known(doc, "exchanges", wanted.stream)
    return exchange.fence if exchange is not None else 1


def claim(doc: Document, w: Wanted) -> Any:
    return calls.claim(doc, PRINCIPAL, Claim(w.number, w.stream, w.data[:1]), w.me, MOST, w.now)


def detach(doc: Document, w: Wanted) -> Any:
    exchange, log = known(doc, "exchanges", w.stream), known(doc, "logs", w.stream)
    generation = exchange.generation if exchange is not None else 0
    whole = log.top if log is not None and w.flag else None
    return readers.detach(doc, w.stream, generation, whole, w.now, broke=w.flag)


def append(doc: Document, w: Wanted) -> Any:
    return streams.append(doc, w.stream, fence_of(doc, w), [(w.tag, w.data)], w.at)


def settle(doc: Document, w: Wanted) -> Any:
    return calls.settle(doc, w.stream, fence_of(doc, w), w.data, w.at, tag=w.tag, keep=w.flag)


def end_plain(doc: Document, w: Wanted) -> Any:
    return calls.end_plain(doc, w.stream, fence_of(doc, w), w.now)


RULES: Final[tuple[Callable[[Document, Wanted], Any], ...]] = (
    claim,
    claim,
    settle,
    append,
    detach,
    end_plain,
    lambda doc, w: streams.open_stream(doc, w.stream, fence_of(doc, w), w.tag),
    lambda doc, w: streams.append(doc, "", STANDALONE_FENCE, [(w.tag, w.data)], w.at),
    lambda doc, w: readers.attach(doc, PRINCIPAL, w.stream, None, None, w.me, w.now),
    lambda doc, w: asks.ask(doc, w.ask, w.stream, w.me, LIMITS.asks),
    lambda doc, w: asks.answer(doc, PRINCIPAL, w.ask, b"d", w.data, w.now),
    lambda doc, w: asks.withdraw(doc, w.ask, w.now),
    lambda doc, w: turns.hold_turn(doc, w.stream, fence_of(doc, w), w.me),
    lambda doc, w: turns.pass_turn(doc, w.stream, fence_of(doc, w)),
    lambda doc, w: calls.give_back(doc, w.stream, fence_of(doc, w) if w.flag else 0, w.now),
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
    st.just(NOW),
)
STEPS: Final = st.tuples(st.sampled_from(RULES), WANTED)
Step = tuple[Callable[[Document, Wanted], Any], Wanted]


class Writer:
    """A replica: it applies a rule to a draft, and commits it."""

    def __init__(self, name: str, session: DictSession) -> None:
        self.name = name
        self.session = session
        self.number = 0
        self.doc = SharedDocument(session.numbers, session.fields)

    def apply(self, step: Step) -> Any:
        """Apply a rule to the draft; return its result, or the kind of its error."""
        rule, wanted = step
        while True:
            self.doc.begin_noting(is_noting=True)
            try:
                return rule(self.doc, wanted)
            except LimpetError as error:
                return type(error)
            except NeedsAll:
                self.doc = SharedDocument(self.session.numbers, self.session.fields)
            except NeedsIndex as needed:
                self.doc.undo()
                log = self.session.logs[needed.stream]
                sizes = [(seq, tag, len(data)) for seq, (tag, data) in log.items()]
                if not self.doc.logs.stored(needed.stream).set_index(sizes):
                    self.doc = SharedDocument(self.session.numbers, self.session.fields)

    def commit(self, step: Step, result: Any) -> Any:
        """Commit the draft; if that is refused, apply the rule again. Return the last result."""
        while True:
            self.number += 1
            self.doc.collect()
            commit = self.doc.commit(self.name, self.number, self.number - 1, float(len(self.name)))
            reply = self.session.commit(commit, 10**9)
            if isinstance(reply, Done):
                self.doc.accept(reply, commit)
                return result
            assert isinstance(reply, Stale)
            self.number -= 1
            self.doc.undo()
            if commit.compare is None:
                self.doc = SharedDocument(self.session.numbers, self.session.fields)
            else:
                self.doc.learn(reply.numbers, reply.fields)
            result = self.apply(step)


def everything(session: DictSession) -> dict[str, Any]:
    """Return everything that must be equal. The order of two ends is not decided if they are made at once."""
    numbers = dict(zip(NUMBERS, unpack(session.numbers), strict=True))
    fields = {name: value for name, value in session.fields.items() if name[:2] not in {"o:", "f:"}}
    ended = {name for name in session.fields if name.startswith("f:")}
    logs = {stream: log for stream, log in session.logs.items() if log}
    return {
        "numbers": {name: numbers[name] for name in numbers.keys() - FREE},
        **fields,
        "ended": ended,
        "logs": logs,
    }


def _wanted(stream: str, number: int, *, flag: bool = True) -> Wanted:
    return Wanted(stream, "one.1", number, b"", flag, number)


@example(  # The last reader breaks while another request brings a reader: the session is not detached.
    [(claim, _wanted("a", 1))], (claim, _wanted("b", 2)), (detach, _wanted("a", 1))
)
@given(history=st.lists(STEPS, max_size=12), one=STEPS, two=STEPS)
def test_two_drafts_of_one_session_have_the_effect_of_two_steps(
    history: list[Step], one: Step, two: Step
) -> None:
    session = DictSession(record(), *opened(record(), 0.0, 1.0))
    past = Writer("past", session)
    # Fences are made from the time: each of the two steps has its own, so that their order does not matter.
    two = two[0], two[1]._replace(now=NOW + 1)
    for step in [(claim, _wanted("ended", 9)), (end_plain, _wanted("ended", 9)), *history]:
        past.commit(step, past.apply(step))
    after = copy.deepcopy(session)
    writer = Writer("both", after)
    expected = [writer.commit(step, writer.apply(step)) for step in (one, two)]
    first, second = Writer("first", session), Writer("second", session)
    results = [first.apply(one), second.apply(two)]
    found = [first.commit(one, results[0]), second.commit(two, results[1])]
    assert everything(session) == everything(after)
    assert found == expected
