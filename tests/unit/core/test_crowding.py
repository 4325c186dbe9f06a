"""Who makes room: the address with the most idle ones, its longest idle one first."""

from limpet.core.crowding import Crowd, most_idle_first


def test_the_address_with_the_most_idle_ones_loses_its_longest_idle_ones_first() -> None:
    idle = [("a", 1), ("b", 2), ("b", 3), ("c", 4), ("b", 5)]
    assert most_idle_first(idle) == [2, 3, 5, 1, 4]
    assert most_idle_first([]) == []


def test_the_idle_ones_are_looked_at_once_in_a_while() -> None:
    looks: list[float] = []
    idle = [("a", 1), ("a", 2)]

    def look() -> list[tuple[str, int]]:
        looks.append(now)
        return idle

    crowd: Crowd[int] = Crowd(look, pause=1.0)
    now = 10.0
    assert [crowd.next(now) for _ in range(4)] == [1, 2, None, None]
    assert looks == [10.0]
    now = 11.0
    assert crowd.next(now) is None
    now = 11.1
    assert crowd.next(now) == 1
    assert looks == [10.0, 11.1]
