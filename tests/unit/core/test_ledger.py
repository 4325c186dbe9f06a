"""The ledger: how much each holder may use, and when bytes are free again."""

import gc
from threading import Thread

import pytest

from limpet.core.ledger import KEPT, PARTIAL, WORK, Account, Charge, Ledger


def filled(account: Account, size: int = 1, *, urgent: bool = False) -> list[Charge]:
    """Take as much as an account gets, in small pieces."""
    charges = []
    while (charge := account.take(size, urgent=urgent)) is not None:
        charges.append(charge)
    return charges


@pytest.mark.parametrize(("others", "expected"), [(0, 500), (1, 333), (2, 250), (4, 166)])
def test_holders_that_take_all_they_can_get_equal_shares(others: int, expected: int) -> None:
    ledger = Ledger(1_000)
    accounts = [ledger.account(str(number)) for number in range(others + 1)]
    kept: list[Charge] = []
    before = -1
    while len(kept) != before:
        before = len(kept)
        kept += [charge for account in accounts if (charge := account.take(1)) is not None]
    assert all(abs(account.used - expected) <= 1 for account in accounts)


def test_one_who_comes_late_finds_room() -> None:
    ledger = Ledger(1_000)
    kept = filled(ledger.account("first"))
    assert len(filled(ledger.account("late"))) == 250
    assert len(kept) == 500


def test_a_session_gets_a_third_and_all_sessions_of_a_principal_its_share() -> None:
    ledger = Ledger(1_200)
    first = filled(ledger.account("ann", "one"))
    assert len(first) == 400
    second = filled(ledger.account("ann", "two"))
    assert ledger.account("ann").used == len(first) + len(second) == 600


def test_new_work_leaves_an_eighth_and_urgent_work_half_of_it() -> None:
    ledger = Ledger(800)
    kept = [ledger.account(str(number)).take(100) for number in range(8)]
    assert [charge is not None for charge in kept] == [True] * 7 + [False]
    last = ledger.account("last")
    assert last.take(10) is None
    assert last.take(51, urgent=True) is None
    kept.append(last.take(50, urgent=True))
    assert kept[-1] is not None
    assert ledger.account("0").take(1, urgent=True) is None


@pytest.mark.parametrize(("light", "multiple"), [(WORK, 16), (KEPT, 64)])
@pytest.mark.parametrize("urgent", [False, True])
def test_a_holder_that_uses_little_may_use_the_last_bytes(light: int, multiple: int, *, urgent: bool) -> None:
    ledger = Ledger(6_400)
    kept = [ledger.account(str(number)).take(700) for number in range(8)]
    some = [ledger.account(f"some {number}") for number in range(300)]
    kept += [account.take(3, urgent=urgent, light=light) for account in some]
    assert ledger.total - ledger.used in range(3 * multiple, 3 * multiple + 3)
    assert some[0].take(1, urgent=urgent, light=light) is None
    kept.append(ledger.account("light").take(2, urgent=urgent, light=light))
    assert kept[-1] is not None


def test_many_that_keep_a_part_of_a_message_leave_room_for_the_calls_of_others() -> None:
    ledger = Ledger(64_000)
    kept = [ledger.account(str(number)).open() for number in range(1_000)]
    taken = [
        charge.grow(100, light=PARTIAL) or charge.grow(100, urgent=True, light=PARTIAL) for charge in kept
    ]
    assert not all(taken)
    assert ledger.total - ledger.used in range(4_000, 4_100), "a sixteenth is free"
    assert ledger.account("ann").take(100) is not None


def test_a_holder_without_bytes_in_use_may_take_any_size_that_is_free() -> None:
    ledger = Ledger(100)
    ann = ledger.account("ann", 1)
    charge = ann.take(80)
    assert charge is not None
    assert ledger.account("bob").take(10) is None
    del charge
    huge = ann.take(1_000)
    assert huge is not None, "nothing else is in use"
    assert ledger.account("bob").take(1) is None


def test_bytes_that_are_in_memory_are_charged_without_a_question() -> None:
    ledger = Ledger(100)
    charge = ledger.account("ann").open()
    charge.set(150)
    assert ledger.used == 150
    assert ledger.account("bob").take(1, urgent=True) is None
    charge.set(10)
    assert (ledger.used, ledger.account("ann").used) == (10, 10)


def test_bytes_are_free_when_the_last_reference_is_dropped() -> None:
    ledger = Ledger(100)
    charge = ledger.account("ann", "session").take(40)
    shared = [charge, charge]
    gc.disable()
    try:
        del charge
        shared.pop()
        assert ledger.used == 40
        shared.pop()
        assert ledger.used == 0
    finally:
        gc.enable()
    assert repr(ledger) == "<Ledger 0/100 bytes, 2 accounts>", "the last ones stay"


def test_freed_by_hand_they_are_not_freed_again() -> None:
    ledger = Ledger(1_000)
    account = ledger.account("ann")
    other, charge = account.take(10), account.take(20)
    assert other is not None
    assert charge is not None
    charge.free()
    charge.free()
    del charge
    assert (ledger.used, account.used) == (10, 10)


def test_a_charge_grows_as_far_as_there_is_room() -> None:
    account = Ledger(100).account("ann")
    other, charge = account.take(10), account.open()
    assert other is not None
    assert charge.grow(30)
    assert not charge.grow(50)
    assert (charge.size, account.used) == (30, 40)
    assert charge.grow(20), "it has them already"
    assert charge.grow(31)
    assert account.used == 41
    other.set(100)
    assert charge.grow(31), "it has them already, although nothing is free"


def test_charges_that_end_in_other_threads_are_counted() -> None:
    ledger = Ledger(10_000_000)
    charges = [ledger.account(str(number % 7)).take(10) for number in range(2_000)]

    def drop() -> None:
        while charges:
            try:
                charges.pop()
            except IndexError:
                return

    threads = [Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.used == 0


def test_a_process_gives_out_its_part_less_what_it_takes_at_rest() -> None:
    ledger = Ledger(1_000)
    ledger.divide(2, 100)
    assert ledger.total == 400
    ledger.divide(2, 450)
    assert ledger.total == 250, "at least half of its part"


def test_the_sizes_that_wait_to_be_subtracted_are_few() -> None:
    ledger = Ledger(1 << 40)
    account = ledger.account("ann", 1)
    for _ in range(5_000):
        account.take(1)
    assert len(ledger.freed) < 1_000
    assert (ledger.used, account.used, account.owner.used) == (0, 0, 0)


def test_urgent_things_of_one_holder_take_two_thirds() -> None:
    account = Ledger(900).account("ann")
    assert len(filled(account, urgent=True)) == 600


def test_an_account_knows_its_room_and_what_it_uses_beyond_its_share() -> None:
    ledger = Ledger(1_000)
    ann, bob = ledger.account("ann", "session"), ledger.account("bob")
    charge = ann.open()
    for size, room, over in ((100, 400, 100 - 2 * 900), (800, -300, 400), (1_500, -1_000, 1_500)):
        charge.set(size)
        assert (ann.room, ann.owner.over) == (room, over)
    charge.set(800)
    assert bob.room == 200 - 125, "the reserve stays"
    assert ledger.pressed == 800 - 1_000 + 125
    charge.set(100)
    assert bob.room == 450
