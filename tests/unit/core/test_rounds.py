"""Rounds of a suspended call: answered once, repeated equally, never reused."""

from limpet.core.rounds import Asked, Rounds, Taken

ASKED = Asked("elicitation/create", {})


def test_a_round_asks_for_everything_that_waits() -> None:
    rounds = Rounds()
    names = [rounds.ask(ASKED), rounds.ask(ASKED), rounds.ask(ASKED, "mine")]
    assert names == ["ask-1", "ask-2", "mine"]
    assert set(rounds.go_out()) == set(names)
    assert rounds.number == 1
    assert rounds.is_parked


def test_answers_are_taken_once_and_the_unanswered_stay() -> None:
    rounds = Rounds()
    first, second = rounds.ask(ASKED), rounds.ask(ASKED)
    rounds.go_out()
    taken, given = rounds.take(1, {first: {"a": 1}, "unknown": {}}, b"d1")
    assert (taken, given) == (Taken.FRESH, {first: {"a": 1}})
    assert set(rounds.waiting) == {second}
    assert not rounds.is_parked
    assert set(rounds.go_out()) == {second}


def test_an_answer_that_is_not_an_object_is_ignored() -> None:
    rounds = Rounds()
    name = rounds.ask(ASKED)
    rounds.go_out()
    assert rounds.take(1, {name: "text"}, b"d") == (Taken.FRESH, {})
    assert set(rounds.waiting) == {name}


def test_the_same_answers_again_are_a_repeat_and_others_are_refused() -> None:
    rounds = Rounds()
    name = rounds.ask(ASKED)
    rounds.go_out()
    assert rounds.take(1, {name: 1}, b"one")[0] is Taken.FRESH
    assert rounds.take(1, {name: 1}, b"one") == (Taken.REPEAT, {})
    assert rounds.take(1, {name: 2}, b"two") == (Taken.REFUSED, {})
    rounds.ask(ASKED)
    rounds.go_out()
    assert rounds.take(1, {name: 1}, b"one") == (Taken.REPEAT, {}), "an earlier round can still be repeated"


def test_rounds_that_were_never_out_are_refused() -> None:
    rounds = Rounds()
    assert rounds.take(0, {}, b"")[0] is Taken.REFUSED
    assert rounds.take(1, {}, b"")[0] is Taken.REFUSED
    rounds.go_out()
    for number in (-1, 0, 2):
        assert rounds.take(number, {}, b"")[0] is Taken.REFUSED


def test_a_key_is_never_used_twice_in_a_call() -> None:
    rounds = Rounds()
    names = [rounds.ask(ASKED, "name") for _ in range(3)] + [rounds.ask(ASKED) for _ in range(3)]
    assert names == ["name", "name-2", "name-3", "ask-4", "ask-5", "ask-6"]
    for name in names:
        rounds.withdraw(name)
    assert rounds.waiting == {}
    names += [rounds.ask(ASKED, "name"), rounds.ask(ASKED)]
    assert len(set(names)) == len(names)
