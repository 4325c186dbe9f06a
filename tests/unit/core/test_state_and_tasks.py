"""The rules of state and of tasks, without a store: a refusal changes nothing, and a change that is sent again counts once."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.rules import tasks
from limpet.core.rules.areas import AreaBounds, own_area, room, use
from limpet.core.rules.state import (
    ENTRY_BYTES,
    REMEMBERED_OPS,
    Cell,
    FieldChange,
    StateFields,
    StateRoom,
    change,
    hold,
)
from limpet.core.rules.tasks import TASK_END_BYTES, StoredTask, TaskBounds
from limpet.errors import StateError, TooMuchKept
from limpet.testing.store.limits import tight

ROOM = StateRoom(bytes=60, total=1_000, kept=3 * ENTRY_BYTES)
CHANGES = st.builds(
    FieldChange,
    op=st.sampled_from(["1", "2", "3", "4"]),
    field=st.sampled_from(["f", "é"]),
    value=st.none() | st.integers(0, 70).map(lambda size: b"x" * size) | st.just(b"7"),
    by=st.none() | st.none() | st.integers(-(2**70), 2**70),
    version=st.none() | st.integers(0, 3),
)


def numbers(state: StateFields) -> tuple[object, ...]:
    return state.bytes, state.versions, state.kept, dict(state.cells), list(state.results.items())


@given(st.lists(CHANGES, max_size=20))
def test_the_numbers_are_those_of_the_fields_and_a_refusal_or_a_repeat_changes_nothing(
    wanted: list[FieldChange],
) -> None:
    state = StateFields()
    for one in wanted:
        before = numbers(state)
        is_repeated = one.op in state.results
        try:
            result = change(state, one, ROOM)
        except StateError:
            assert numbers(state) == before
            continue
        assert result == state.results[one.op]
        assert (numbers(state) == before) == is_repeated
        sizes = [len(name.encode()) + len(cell.value) for name, cell in state.cells.items()]
        assert state.bytes == sum(sizes) <= ROOM.bytes
        assert state.kept == sum(sizes) + ENTRY_BYTES * len(sizes) <= ROOM.kept
        versions = [cell.version for cell in state.cells.values()]
        assert len(set(versions)) == len(versions)
        assert max(versions, default=0) <= state.versions


def test_a_refusal_says_what_would_have_to_be_allowed() -> None:
    state = StateFields()
    change(state, FieldChange("1", "f", b"x"), ROOM._replace(kept=ENTRY_BYTES + 2))
    with pytest.raises(TooMuchKept) as refused:
        change(state, FieldChange("2", "g", b"xy"), ROOM._replace(kept=ENTRY_BYTES + 2))
    assert refused.value.kept == 2 * ENTRY_BYTES + 5
    assert change(state, FieldChange("3", "f", None), ROOM._replace(kept=0)) == 0, "less is never refused"


def test_a_change_with_a_version_is_made_only_if_the_field_has_it() -> None:
    state = StateFields()
    assert change(state, FieldChange("1", "f", b"x", version=1), ROOM) == -1
    assert change(state, FieldChange("2", "f", b"x", version=0), ROOM) == 1
    assert change(state, FieldChange("3", "f", b"y", version=0), ROOM) == -1
    assert state.cells == {"f": Cell(b"x", 1)}
    assert change(state, FieldChange("4", "f", b"y", version=1), ROOM) == 2


def test_the_last_byte_may_be_used_and_no_other_and_what_does_not_grow_is_never_refused() -> None:
    full, none = ROOM._replace(bytes=4), ROOM._replace(bytes=0, kept=0)
    state = StateFields()
    change(state, FieldChange("1", "f", b"xyz"), full._replace(kept=ENTRY_BYTES + 4))
    change(state, FieldChange("2", "f", b"zyx"), none)
    for given_room in (full, full._replace(bytes=5, kept=ENTRY_BYTES + 4)):
        with pytest.raises(StateError):
            change(state, FieldChange("3", "f", b"wxyz"), given_room)


def test_the_oldest_results_are_forgotten_first() -> None:
    state = StateFields()
    for number in range(REMEMBERED_OPS + 1):
        change(state, FieldChange(f"{number}", "n", by=1), ROOM)
    assert len(state.results) == REMEMBERED_OPS
    assert "0" not in state.results
    assert state.cells == {"n": Cell(b"%d" % (REMEMBERED_OPS + 1), REMEMBERED_OPS + 1)}


def test_what_a_subscription_keeps_counts_once_and_only_that_is_given_back() -> None:
    state, size = StateFields(), ENTRY_BYTES + 1
    for op in ("1", "1", "2"):
        assert hold(state, op, "m:u", "u", ROOM, holds=True) == size
    assert hold(state, "3", "m:v", "v", ROOM, holds=False) == size
    with pytest.raises(TooMuchKept):
        hold(state, "4", "m:v", "v", ROOM._replace(kept=2 * size - 1), holds=True)
    assert hold(state, "5", "m:u", "u", ROOM, holds=False) == state.kept == 0
    assert not state.cells


TASK = StoredTask("p", b"one", 3, 50.0, "r.1")


def test_a_task_changes_by_one_version_and_knows_a_change_that_is_sent_again() -> None:
    changed = tasks.change(TASK, b"two", 3, 60.0, ends=False)
    assert changed == StoredTask("p", b"two", 4, 60.0, "r.1")
    assert tasks.change(changed, b"two", 3, 90.0, ends=False) is changed
    assert tasks.change(changed, b"three", 3, 90.0, ends=False) is None
    ended = tasks.change(changed, b"end", 4, 10.0, ends=True)
    assert ended == StoredTask("p", b"end", 5, 60.0, ""), "it has no owner, and is not kept for shorter"


def test_a_task_is_seen_by_its_principal_until_it_expires() -> None:
    assert tasks.seen(TASK, "p", 49.9) is TASK
    assert tasks.seen(TASK, "q", 49.9) is tasks.seen(TASK, "p", 50.0) is tasks.seen(None, "p", 0.0) is None


def test_the_bounds_of_tasks_are_exact_and_a_short_end_has_none() -> None:
    limits = tight(tasks=2, tasks_per_principal=1, task_bytes=2_000, tasks_bytes=10, principal_tasks_bytes=5)
    most = TaskBounds.of(limits)
    new = StoredTask("p", b"12345", 1, 50.0, "r.1")
    assert most.allow(None, new, tasks=1, own_tasks=0, size=5, own=0)
    assert not most.allow(None, new, tasks=2, own_tasks=0, size=0, own=0)
    assert not most.allow(None, new, tasks=1, own_tasks=1, size=0, own=0)
    assert not most.allow(None, new, tasks=1, own_tasks=0, size=6, own=0)
    assert not most.allow(None, new, tasks=1, own_tasks=0, size=0, own=1)
    assert most.allow(TASK, new, tasks=2, own_tasks=1, size=8, own=3), "only what it grows by counts"
    assert most.allow(new, TASK, tasks=2, own_tasks=1, size=10, own=5), "a smaller one is never refused"
    assert tasks.bounds(limits, b"x" * TASK_END_BYTES, ends=True) is None
    assert tasks.bounds(limits, b"x" * TASK_END_BYTES, ends=False) == most
    tasks.bounds(limits, b"x" * 2_000, ends=True)
    with pytest.raises(StateError):
        tasks.bounds(limits, b"x" * 2_001, ends=True)


def test_an_area_lives_for_as_long_as_its_principal_uses_it() -> None:
    area = SimpleNamespace(principal="ada", ttl=10.0, due=10.0)
    assert not use(None, "ada", 0.0)
    assert not use(area, "bob", 0.0)
    assert not use(area, "ada", 10.0), "it has expired"
    assert area.due == 10.0
    assert use(area, "ada", 9.0)
    assert area.due == 19.0


def test_each_kind_of_area_has_its_own_bounds() -> None:
    limits = tight(handles=5, handles_per_principal=2, principal_states=3)
    handles, anonymous, own = (
        AreaBounds.of(name, principal, limits)
        for name, principal in (("a", "ada"), ("a", ""), (own_area("ada"), "ada"))
    )
    assert [handles.allow(4, 1), handles.allow(5, 0), handles.allow(2, 2)] == [True, False, False]
    assert [anonymous.allow(4, 4), anonymous.allow(5, 0)] == [True, False], (
        "anonymous clients are no principal"
    )
    assert [own.allow(2, 9), own.allow(3, 0)] == [True, False]


def test_the_own_state_of_a_principal_has_a_limit_of_its_own() -> None:
    limits = tight(state_bytes=1, principal_state_bytes=2, principal_kept_bytes=3)
    assert room("handle or session", limits, 5) == StateRoom(1, 3, 5)
    assert room(own_area("ada"), limits, 5) == StateRoom(2, 3, 5)


@pytest.mark.parametrize("value", [b'"text"', b"1.5", b"true", b"null", b"not json"])
def test_only_an_integer_can_be_added_to(value: bytes) -> None:
    state = StateFields()
    change(state, FieldChange("1", "f", value), ROOM)
    with pytest.raises(StateError):
        change(state, FieldChange("2", "f", by=1), ROOM)
    assert state.cells == {"f": Cell(value, 1)}
