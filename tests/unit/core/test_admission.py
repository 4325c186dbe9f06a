"""The gate's order and verdicts; its counts are a property."""

from holdfast.core.admission import Admission, Gate


def test_tickets_enter_then_wait_then_are_refused() -> None:
    gate: Gate[str] = Gate(1, 1)
    assert [gate.enter(name) for name in "abc"] == [Admission.START, Admission.WAIT, Admission.REFUSE]


def test_places_are_handed_on_in_the_order_of_arrival() -> None:
    gate: Gate[str] = Gate(1, 9)
    for name in "abcd":
        gate.enter(name)
    gate.abandon("c")
    assert [gate.leave() for _ in range(3)] == ["b", "d", None]


def test_no_request_overtakes_a_waiting_one() -> None:
    gate: Gate[str] = Gate(2, 9)
    for name in "abc":
        gate.enter(name)
    assert gate.leave() == "c"
    assert gate.enter("d") is Admission.WAIT


def test_a_request_that_has_a_place_cannot_abandon_it() -> None:
    gate: Gate[str] = Gate(1, 9)
    gate.enter("a")
    gate.enter("b")
    gate.leave()
    assert not gate.abandon("b")
    assert not gate.abandon("unknown")
    assert gate.inside == 1


def test_a_gate_without_queue_refuses_at_once() -> None:
    gate: Gate[str] = Gate(1, 0)
    gate.enter("a")
    assert gate.enter("b") is Admission.REFUSE
    assert not gate.abandon("b")


def test_gates_share_no_queue() -> None:
    one, other = Gate[int](0, 1), Gate[int](0, 1)
    assert one.enter(1) is Admission.WAIT
    assert (one.waiting, other.waiting) == (1, 0)
