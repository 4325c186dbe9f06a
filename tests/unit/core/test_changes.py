"""The set of changes that wait for one client."""

from limpet.core.changes import ChangeSet
from limpet.protocol.subscriptions import Change


def test_equal_changes_are_one_and_the_newest_counts() -> None:
    waiting = ChangeSet(10)
    for change in (Change("resource", "a"), Change("tools"), Change("resource", "a", {"n": 2})):
        assert waiting.add(change)
    assert len(waiting) == 2
    assert waiting.take() == [Change("resource", "a", {"n": 2}), Change("tools")]
    assert waiting.take() == []


def test_a_full_set_takes_only_changes_that_it_has_already() -> None:
    waiting = ChangeSet(2)
    assert waiting.add(Change("resource", "a"))
    assert waiting.add(Change("resource", "b"))
    assert not waiting.add(Change("resource", "c"))
    assert waiting.add(Change("resource", "a"))
    assert repr(waiting) == "<ChangeSet 2/2>"
    assert [change.name for change in waiting.take(1)] == ["a"]
    assert [change.name for change in waiting.take()] == ["b"]
    assert waiting.add(Change("resource", "c"))


def test_the_bytes_of_names_and_details_are_bounded() -> None:
    waiting = ChangeSet(100, most_bytes=10)
    assert waiting.add(Change("resource", "five5"))
    assert not waiting.add(Change("resource", "six666"))
    assert not waiting.add(Change("resource", "five5", {"more": 1}))
    assert waiting.add(Change("resource", "five5"))
    assert waiting.add(Change("resource", "\u00e4bcd"))
    assert [change.name for change in waiting.take()] == ["five5", "\u00e4bcd"]
    assert waiting.add(Change("resource", "ten_bytes!"))
