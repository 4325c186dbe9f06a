"""A log against the plain list it stands for, under any mix of appends, trims and reads."""

from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from limpet.core.stream import Continuity, Log, Position

SIZES: Final = st.integers(0, 50)


class LogMachine(RuleBasedStateMachine):
    """`model` is every event there ever was; the log may have forgotten a head of it and nothing else."""

    @initialize(seq=st.integers(0, 5))
    def begin(self, seq: int) -> None:
        self.first = seq
        self.log = Log(Position(seq, 7))
        self.positions = [Position(seq, 7)]
        self.model: list[bytes] = []
        self.dropped = 0

    @precondition(lambda self: not self.log.closed)
    @rule(size=SIZES, final=st.sampled_from([False] * 9 + [True]))
    def append(self, size: int, final: bool) -> None:
        tag = 1000 + len(self.model)
        event = self.log.append(tag, bytes([len(self.model) % 256]) * size, final=final)
        self.model.append(event.data)
        self.positions.append(event.position)

    @rule(max_events=st.integers(0, 8), max_bytes=st.integers(0, 200))
    def trim(self, max_events: int, max_bytes: int) -> None:
        before = self.log.bytes
        freed = self.log.trim(max_events, max_bytes)
        assert self.log.bytes == before - freed
        kept = len(self.log.events)
        assert kept <= max(1, max_events)
        assert kept or not self.model, "the newest event is always kept"
        assert self.log.bytes <= max_bytes or kept <= 1
        # Not more than was needed: the event before the first retained one did not fit.
        newly_dropped = len(self.model) - kept - self.dropped
        if newly_dropped:
            last_out = self.model[len(self.model) - kept - 1]
            assert kept + 1 > max_events or self.log.bytes + len(last_out) > max_bytes
        self.dropped = len(self.model) - kept

    @rule(data=st.data(), max_events=st.integers(1, 8), max_bytes=st.integers(0, 100))
    def read(self, data: st.DataObject, max_events: int, max_bytes: int) -> None:
        index = data.draw(st.integers(0, len(self.positions) - 1))
        page = self.log.read(self.positions[index], max_events, max_bytes)
        start = max(index, self.dropped)
        payloads = [event.data for event in page.events]
        assert payloads == self.model[start : start + len(payloads)]
        assert [event.position for event in page.events] == self.positions[
            start + 1 : start + 1 + len(payloads)
        ]
        assert bool(payloads) == (start < len(self.model))
        assert len(payloads) <= max_events
        assert sum(map(len, payloads)) <= max_bytes or len(payloads) == 1
        gap = (
            (self.positions[index].seq + 1, self.positions[self.dropped].seq)
            if index < self.dropped
            else None
        )
        assert page.missed == gap
        assert page.continuity is (Continuity.GAP if gap else Continuity.OK)
        assert page.finished == (self.log.closed and start + len(payloads) == len(self.model))

    @rule(data=st.data())
    def follow(self, data: st.DataObject) -> None:
        """Pages one after another are the whole rest, in order, without a hole or a repeat."""
        index = data.draw(st.integers(self.dropped, len(self.positions) - 1))
        cursor, seen = self.positions[index], []
        while (page := self.log.read(cursor, 3, 40)).events:
            seen += [event.data for event in page.events]
            cursor = page.events[-1].position
        assert seen == self.model[index:]

    @rule(seq=st.integers(-2, 60), tag=st.integers(0, 6))
    def forge(self, seq: int, tag: int) -> None:
        """A tag that was never given out is refused wherever its tag could still be known."""
        page = self.log.read(Position(seq, tag), 9, 9)
        believable = self.first <= seq < self.log.low.seq
        assert page.continuity is (Continuity.GAP if believable else Continuity.FORK)

    @invariant()
    def bytes_are_those_of_the_retained_events(self) -> None:
        if hasattr(self, "log"):
            assert self.log.bytes == sum(len(event.data) for event in self.log.events)
            assert [event.data for event in self.log.events] == self.model[self.dropped :]


TestLog = LogMachine.TestCase
