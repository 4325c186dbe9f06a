"""Bytes in use, in total and by holder: which sizes fit, and when bytes are free again."""

import gc
from threading import Thread

import pytest

from holdfast.core.budget import Budget, Charge


def test_an_amount_that_fits_is_taken_and_a_larger_one_is_refused() -> None:
    budget = Budget(100, principal=60, session=40)
    first = budget.take(30, principal="ann", session=1)
    assert first is not None
    assert budget.take(11, principal="ann", session=1) is None, "the session has 40"
    second = budget.take(30, principal="ann", session=2)
    assert second is not None
    assert budget.take(1, principal="ann", session=3) is None, "the principal has 60"
    third = budget.take(40, principal="bob", session=4)
    assert third is not None
    assert budget.take(1, principal="eve", session=9) is None, "there are 100"


def test_sessions_of_one_name_share() -> None:
    budget = Budget(1_000, session=10)
    taken = budget.take(8, session="a"), budget.take(8, session="a"), budget.take(8, session="b")
    assert [charge is not None for charge in taken] == [True, False, True]


def test_bytes_are_free_when_the_last_one_lets_go() -> None:
    budget = Budget(100, principal=100)
    charge = budget.take(100, principal="ann")
    shared = [charge, charge]
    gc.disable()
    try:
        del charge
        shared.pop()
        assert budget.used == 100
        shared.pop()
        assert budget.used == 0
    finally:
        gc.enable()
    assert repr(budget) == "<Budget 0/100 bytes, 0 holders>"


def test_freed_by_hand_they_are_not_freed_again() -> None:
    budget = Budget(100)
    other, charge = budget.take(10), budget.take(20)
    assert other is not None
    assert charge is not None
    charge.free()
    charge.free()
    del charge
    assert budget.used == 10


def test_a_charge_grows_as_far_as_there_is_room() -> None:
    budget = Budget(100, principal=50)
    other, charge = budget.take(10, principal="ann"), budget.open(principal="ann")
    assert other is not None
    assert charge.grow(40)
    assert charge.grow(20), "it never shrinks"
    assert not charge.grow(41)
    assert (charge.size, budget.used) == (40, 50)


@pytest.mark.parametrize("size", [101, 10_000])
def test_a_holder_with_nothing_in_use_may_take_more_than_its_share(size: int) -> None:
    budget = Budget(100, principal=50)
    charge = budget.open(principal="ann")
    assert charge.grow(60)
    assert charge.grow(size), "its own bytes do not stand in its way"
    assert budget.take(1, principal="bob") is None
    del charge
    assert budget.take(1, principal="bob") is not None


def test_a_charge_that_is_deleted_while_another_is_counted_is_not_lost() -> None:
    """The garbage collector may run between any two steps; here it does, at each of them in turn."""

    class Moment:
        """A holder that has charges deleted the n-th time that it is looked up."""

        def __init__(self, looks: int) -> None:
            self.looks = looks
            self.charges: list[Charge | None] = []

        def __hash__(self) -> int:
            self.looks -= 1
            if not self.looks:
                self.charges.clear()
            return 1

        def __eq__(self, other: object) -> bool:
            return self is other

    for looks in range(3, 30):
        budget, holder = Budget(1_000, principal=1_000), Moment(looks)
        holder.charges += [budget.take(10, principal=holder), budget.take(20, principal=holder)]
        last = [budget.take(100, principal=holder) for _ in range(3)]
        holder.charges.clear()
        assert budget.used == 300, looks
        assert None not in last
        del last
        assert repr(budget) == "<Budget 0/1000 bytes, 0 holders>", looks


def test_charges_may_end_in_any_thread() -> None:
    budget = Budget(1 << 30, principal=1 << 30)

    def end_many(charges: list[Charge | None]) -> None:
        while charges:
            charges.pop()

    made = [[budget.take(1, principal="ann") for _ in range(2_000)] for _ in range(4)]
    threads = [Thread(target=end_many, args=(charges,)) for charges in made]
    for thread in threads:
        thread.start()
    kept = [budget.take(1, principal="ann") for _ in range(2_000)]
    for thread in threads:
        thread.join()
    assert budget.used == len(kept)
