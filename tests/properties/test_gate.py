"""A gate compared with a model of two lists: the admitted and the waiting."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from limpet.core.admission import Admission, Gate


class GateMachine(RuleBasedStateMachine):
    @initialize(places=st.integers(1, 4), queue=st.integers(0, 4))
    def begin(self, places: int, queue: int) -> None:
        self.places, self.queue = places, queue
        self.gate: Gate[int] = Gate(places, queue)
        self.inside: set[int] = set()
        self.waiting: list[int] = []
        self.next = 0

    @rule()
    def enter(self) -> None:
        self.next += 1
        verdict = self.gate.enter(self.next)
        if len(self.inside) < self.places and not self.waiting:
            assert verdict is Admission.START
            self.inside.add(self.next)
        elif len(self.waiting) < self.queue:
            assert verdict is Admission.WAIT
            self.waiting.append(self.next)
        else:
            assert verdict is Admission.REFUSE

    @precondition(lambda self: bool(self.inside))
    @rule()
    def leave(self) -> None:
        self.inside.pop()
        following = self.gate.leave()
        assert following == (self.waiting[0] if self.waiting else None)
        if following is not None:
            self.inside.add(self.waiting.pop(0))

    @rule(ticket=st.integers(1, 20))
    def abandon(self, ticket: int) -> None:
        assert self.gate.abandon(ticket) == (ticket in self.waiting)
        if ticket in self.waiting:
            self.waiting.remove(ticket)

    @invariant()
    def counts_agree_and_no_call_waits_beside_a_free_place(self) -> None:
        if hasattr(self, "gate"):
            assert (self.gate.inside, self.gate.waiting) == (len(self.inside), len(self.waiting))
            assert 0 <= self.gate.inside <= self.places
            assert self.gate.inside == self.places or not self.waiting


TestGate = GateMachine.TestCase
