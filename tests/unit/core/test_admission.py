"""The gate's order and verdicts; its counts are a property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.admission import Admission, Gate, SharedGate


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


# A gate with several owners


def started(gate: SharedGate[str], owner: str, count: int) -> int:
    """Let so many tickets of an owner enter; return how many start."""
    verdicts = [gate.enter(owner, f"{owner}{number}") for number in range(count)]
    return verdicts.count(Admission.START)


def test_one_owner_leaves_an_eighth_of_the_places_to_others() -> None:
    gate: SharedGate[str] = SharedGate(64, 1_000)
    assert started(gate, "a", 768) == 56
    assert gate.waiting == 712
    assert started(gate, "b", 10) == 7
    assert started(gate, "c", 10) == 1
    assert started(gate, "d", 1) == 0


@pytest.mark.parametrize("places", range(1, 8))
def test_few_places_are_given_out_all(places: int) -> None:
    assert started(SharedGate(places, 0), "a", 10) == places


def test_a_free_place_goes_to_the_owners_in_turn() -> None:
    gate: SharedGate[str] = SharedGate(1, 1_000)
    assert started(gate, "a", 4) == 1
    assert started(gate, "b", 2) == started(gate, "c", 1) == 0
    order, owner = [], "a"
    while (ticket := gate.leave(owner)) is not None:
        order.append(ticket)
        owner = ticket[0]
    assert order == ["a1", "b0", "c0", "a2", "b1", "a3"]
    assert gate.enter("d", "d0") is Admission.START


def test_the_last_free_place_is_not_for_an_owner_that_has_its_share() -> None:
    gate: SharedGate[str] = SharedGate(8, 1_000)
    assert started(gate, "a", 8) == 7
    assert started(gate, "b", 1) == 1
    assert gate.leave("b") is None
    assert gate.enter("c", "c0") is Admission.START


def test_one_owner_leaves_places_of_the_queue_to_others() -> None:
    gate: SharedGate[str] = SharedGate(1, 16)
    verdicts = [gate.enter("a", f"a{number}") for number in range(30)]
    assert verdicts.count(Admission.WAIT) == 14
    assert verdicts.count(Admission.REFUSE) == 15
    assert gate.enter("b", "b0") is Admission.WAIT


def test_a_ticket_that_is_abandoned_loses_its_place_in_the_queue_only() -> None:
    gate: SharedGate[str] = SharedGate(1, 9)
    assert started(gate, "a", 3) == 1
    assert gate.abandon("a", "a1")
    assert not gate.abandon("a", "a1")
    assert not gate.abandon("a", "a0")
    assert not gate.abandon("b", "a2")
    assert gate.leave("a") == "a2"
    assert gate.leave("a") is None
    assert not gate._held


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=200), st.integers(1, 20))
def test_no_ticket_waits_without_a_reason_and_none_is_lost(
    steps: list[tuple[str, bool]], places: int
) -> None:
    gate: SharedGate[int] = SharedGate(places, 1_000)
    inside: list[str] = []
    waiting: dict[int, str] = {}
    for number, (owner, enters) in enumerate(steps):
        if enters:
            if gate.enter(owner, number) is Admission.START:
                inside.append(owner)
            else:
                waiting[number] = owner
        elif inside:
            ticket = gate.leave(inside.pop())
            if ticket is not None:
                inside.append(waiting.pop(ticket))
        assert len(inside) <= places
        assert gate.waiting == len(waiting)
        # One that waits finds no free place, or its owner has some that will be free.
        assert all(len(inside) == places or one in inside for one in waiting.values())
    while inside:
        ticket = gate.leave(inside.pop())
        if ticket is not None:
            inside.append(waiting.pop(ticket))
    assert not waiting


def test_a_gate_refuses_when_its_queue_is_full_and_a_place_that_stays_is_free_after_the_second_leave() -> (
    None
):
    gate: Gate[str] = Gate(1, 1)
    assert not gate.refuses()
    assert gate.enter("a") is Admission.START
    assert not gate.refuses()
    gate.stay()
    assert gate.enter("b") is Admission.WAIT
    assert gate.refuses()
    alone: Gate[str] = Gate(1, 0)
    assert alone.enter("a") is Admission.START
    assert alone.refuses()
    assert (gate.leave(), gate.leave(), gate.inside) == ("b", None, 1)
    assert not gate.refuses()
