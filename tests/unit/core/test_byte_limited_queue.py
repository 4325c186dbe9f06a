"""Things kept for a while: never more bytes than allowed, and the oldest go first."""

from hypothesis import given
from hypothesis import strategies as st

from limpet.core.byte_limited_queue import ByteLimitedQueue

THINGS = st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.integers(0, 60)), max_size=40)


@given(THINGS, st.data())
def test_a_queue_never_holds_more_than_its_bounds_and_drops_the_oldest(
    things: list[tuple[str, int]], data: st.DataObject
) -> None:
    queue = ByteLimitedQueue(100, 50)
    kept: dict[str, tuple[str, int]] = {}
    for number, (holder, size) in enumerate(things):
        key = str(number)
        kept[key] = holder, size
        for gone in queue.put(key, holder, size):
            whose = kept[gone][0]
            rivals = [other for other, (owner, _) in kept.items() if owner == whose]
            assert gone in (next(iter(kept)), rivals[0]), "the oldest of all, or of its holder"
            del kept[gone]
        removed = data.draw(st.sampled_from(["", *kept]))
        if removed:
            queue.remove(removed)
            queue.remove(removed)
            del kept[removed]
        assert queue.used == sum(size for _, size in kept.values()) <= 100
        for name in ("a", "b"):
            assert sum(size for owner, size in kept.values() if owner == name) <= 50
        assert len(queue) == len(kept)
        assert all(key in queue for key in kept)


def test_a_queue_that_is_just_full_drops_nothing_and_without_a_share_it_keeps_nothing() -> None:
    queue = ByteLimitedQueue(100, 50)
    assert [queue.put(name, name, 50) for name in "ab"] == [[], []]
    assert queue.used == 100
    assert ByteLimitedQueue(100, 0).put("a", "a", 5) == ["a"]
