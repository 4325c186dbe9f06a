"""The table of the fate of an answer: every order of events, against a model that says in other words what must hold.

The model has no table: it remembers who has the place of the reader, and what happened to the answer. It is independent of the
table, so that each row is needed: the last test removes the rows one by one, and the model finds each of them.
"""

from collections.abc import Iterator
from itertools import product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from limpet.core import fate as module
from limpet.core.fate import ROWS, TABLE, Fate, FateAction, FateActions, FateInput, step

In = FateInput
LIVE: Final = [fate for fate in Fate if fate < Fate.DUE]
_ENDS: Final = (In.FAILED, In.LEFT)


class Model(Struct, frozen=True):
    """An answer, told without states."""

    place: str = "post"
    """Who waits for the answer: the POST without a stream, a reader here, one elsewhere, or none."""
    lets_go: bool = False
    """The handler has closed the stream before the POST had a position."""
    has_ended: bool = False
    is_written: bool = False
    is_taken: bool = False
    is_kept: bool = False

    def after(self, happened: FateInput) -> tuple["Model", set[FateAction]]:
        """Return the model after an event, and the actions that it demands."""
        if self.is_taken:
            return self, set()
        if happened in {In.ATTACHED, In.REPEATED}:
            return self._attached(happened)
        if happened is In.SUPERSEDED:
            return self._superseded()
        if happened in _ENDS:
            return self._left()
        if happened is In.RELEASED:
            return self._released()
        if happened is In.ENDED:
            waits = self.place in {"post", "here"}
            return (self if self.has_ended else replace(self, has_ended=True, is_kept=not waits)), set()
        return self._written(happened)

    def _released(self) -> tuple["Model", set[FateAction]]:
        if self.has_ended or self.place not in {"post", "here"}:
            return self, set()
        if self.place == "here":
            return self, {FateAction.LET_GO}
        return replace(self, lets_go=True), set()

    def _written(self, happened: FateInput) -> tuple["Model", set[FateAction]]:
        if happened is In.WROTE:
            return (replace(self, is_written=True) if self._is_due else self), set()
        if self.is_written and self._is_due:
            return replace(self, is_taken=True), {FateAction.LOOK, FateAction.RELEASE}
        return self, set()

    @property
    def _is_due(self) -> bool:
        """True if there is an answer, and a connection of this process waits for it."""
        return self.has_ended and not self.is_kept

    def _attached(self, happened: FateInput) -> tuple["Model", set[FateAction]]:
        if self.has_ended:
            if happened is In.ATTACHED and (self.is_kept or self.is_written):
                # The POST has left, or has its answer without a stream.
                return self, set()
            return replace(self, place="here", is_kept=False, is_written=False), {FateAction.LOOK}
        actions = {FateAction.LOOK} | ({FateAction.LET_GO} if self.lets_go else set())
        return replace(self, place="here", lets_go=False), actions

    def _superseded(self) -> tuple["Model", set[FateAction]]:
        if self.has_ended:
            return (self, set()) if self.is_kept else (replace(self, is_kept=True), {FateAction.LOOK})
        return (
            (replace(self, place="elsewhere"), {FateAction.LOOK}) if self.place == "here" else (self, set())
        )

    def _left(self) -> tuple["Model", set[FateAction]]:
        if self.has_ended:
            if self.is_kept:
                return self, set()
            return replace(self, is_kept=True), {FateAction.LOOK, FateAction.KEEP, FateAction.LEAVE}
        if self.place == "none":
            return self, set()
        # A reader gives its place back when it is detached; the POST has none.
        actions = {FateAction.LOOK} | ({FateAction.LEAVE} if self.place == "post" else set())
        return replace(self, place="none", lets_go=False), actions

    def agrees(self, fate: Fate) -> bool:
        """True if a state says the same as this model."""
        if self.has_ended:
            names = {Fate.TAKEN: self.is_taken, Fate.KEPT: self.is_kept and not self.is_taken}
            names[Fate.WRITTEN] = self.is_written and self._is_due and not self.is_taken
            names[Fate.DUE] = self._is_due and not (self.is_written or self.is_taken)
        else:
            places = {"here": Fate.ATTACHED, "elsewhere": Fate.SUPERSEDED, "none": Fate.GONE}
            names = {places.get(self.place, Fate.RELEASING if self.lets_go else Fate.WAITING): True}
        return bool(names.get(fate))


class Differs(AssertionError):
    """The table and the model differ."""


def compared(fate: Fate, model: Model, happened: FateInput) -> tuple[Fate, Model]:
    """Do a step of both, and compare them."""
    after, actions = module.step(fate, happened)
    model, demanded = model.after(happened)
    if not model.agrees(after) or set(actions) != demanded:
        raise Differs(f"{happened.name} in {fate.name}: {after.name}, {actions}, but {model}, {demanded}")
    return after, model


def walks() -> Iterator[tuple[Fate, FateInput]]:
    """Walk from the beginning to every state by every input, and compare each step with the model."""
    seen = {(Fate.WAITING, Model())}
    fresh = list(seen)
    while fresh:
        fate, model = fresh.pop()
        for happened in FateInput:
            yield fate, happened
            after = compared(fate, model, happened)
            if after not in seen:
                seen.add(after)
                fresh.append(after)


def test_every_state_is_reached_and_every_input_in_it_follows_the_model() -> None:
    assert set(walks()) == set(product(Fate, FateInput))


@given(st.lists(st.sampled_from(FateInput), max_size=40))
def test_any_order_of_events_follows_the_model(inputs: list[FateInput]) -> None:
    fate, model, done = Fate.WAITING, Model(), list[FateActions]()
    for happened in inputs:
        done.append(module.step(fate, happened)[1])
        fate, model = compared(fate, model, happened)
    released = sum(FateAction.RELEASE in actions for actions in done)
    assert released == (fate is Fate.TAKEN), "an id is freed once, and only for an answer that was taken"


@given(st.lists(st.sampled_from(FateInput), max_size=30), st.sampled_from(_ENDS))
def test_an_answer_whose_connection_has_ended_is_taken_or_kept(
    inputs: list[FateInput], end: FateInput
) -> None:
    fate = Fate.WAITING
    for happened in (*inputs, In.ENDED, end):
        fate, _ = step(fate, happened)
    assert fate in {Fate.TAKEN, Fate.KEPT}


def test_no_event_leads_from_the_end_back_to_before_it() -> None:
    assert not [
        (fate, happened)
        for fate in Fate
        for happened in FateInput
        if fate not in LIVE and step(fate, happened)[0] in LIVE
    ]


def test_every_action_is_used_and_a_step_allocates_nothing() -> None:
    assert {action for row in TABLE for _, actions in row for action in actions} == set(FateAction)
    for fate, happened in product(Fate, FateInput):
        assert step(fate, happened) is TABLE[fate][happened]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1].name} in {row[0].name}")
def test_a_row_that_is_missing_is_found(row: tuple[Fate, FateInput], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [list(cells) for cells in TABLE]
    rows[row[0]][row[1]] = (row[0], ())
    monkeypatch.setattr(module, "TABLE", rows)
    with pytest.raises(Differs):
        list(walks())
