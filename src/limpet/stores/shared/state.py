"""State in a store that runs no rule itself: read, decide (`core/rules/state.py`), replace if nothing changed.

A store keeps, for each session or area that has state, a *head* (the numbers, packed), the fields, and the results of
the last changes. A write names the head that was read. If it is still the stored one, and none of the changes has been
made before, the write is applied. Else the rule decides again. Every write makes another head, so a head is never
mistaken for an earlier one.

**Combined.** A process has one write of a session or area under way. The changes that come meanwhile are made by the
next one.

**Known.** What was read or written last stays known here, up to 4 MiB. What is not known is assumed absent, and the
write checks it. So nearly every change is one command; it is two if the assumption was wrong, or another process has
written. Of several processes that write at once, one succeeds in each round. Reading a field always asks the store.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final

import msgspec
from msgspec import Struct
from typing_extensions import override

from limpet.core.rules.areas import room
from limpet.core.rules.state import Cell, FieldChange, StateFields, StateRoom, change
from limpet.errors import SessionGone, StateError, StoreError, TooMuchKept
from limpet.stores.shared.fields import Unreadable
from limpet.stores.shared.rounds import CommandRounds
from limpet.stores.state import StateCommands

_COMBINED: Final = 64
"""Changes in one write."""
_KNOWN_BYTES: Final = 4 * 1024 * 1024
"""Of everything that is known. Beyond, those are forgotten that were not used for the longest time."""
_ENTRY, _FIELD = 1_000, 200
"""Bytes of memory: of a session or area whose last write is known, and of a field besides its name and value."""
_members: Final = msgspec.msgpack.Decoder(list[Any]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
Rule = Callable[[StateFields, StateRoom], int]


class StateHead(Struct):
    """The numbers of the fields of a session or area, as stored: an array, which a later release may lengthen."""

    born: int = 0
    """A random number: two that have followed each other under one name never have the same."""
    writes: int = 0
    size: int = 0
    versions: int = 0
    kept: int = 0
    allowed: int = 0
    """What it may keep, where the sum of its principal lies elsewhere."""
    lowered: int = 0
    """How often that was lowered."""
    more: list[Any] = []

    def encoded(self) -> bytes:
        """Return it as it is stored."""
        known = (self.born, self.writes, self.size, self.versions, self.kept, self.allowed, self.lowered)
        return _encode((*known, *self.more))

    @classmethod
    def decoded(cls, stored: bytes) -> "StateHead":
        """Return the head of these bytes; empty: there is no state yet."""
        head, names = cls(), cls.__struct_fields__[:-1]
        try:
            members = _members(stored) if stored else []
            for name, number in zip(names, members, strict=False):
                setattr(head, name, int(number))
        except (ValueError, TypeError) as error:
            raise Unreadable("the state cannot be read") from error
        head.more = members[len(names) :]
        return head


class StoredState(Struct, frozen=True):
    """What a store has of the fields of a session or area."""

    head: bytes
    """Empty if it has no state yet."""
    cells: Mapping[str, Cell]
    """Of the fields that were asked for, those that there are."""
    results: Mapping[str, int]
    """Of the changes that were asked for, those that were made."""


class StateWrite(Struct, frozen=True):
    """The next head, fields and results, if the stored head is the known one, and no change was made before."""

    known: bytes
    absent: Sequence[str]
    """Fields that must be absent, because they were not read."""
    head: bytes
    put: Mapping[str, Cell]
    delete: Sequence[str]
    results: Mapping[str, int]
    grows: int
    """By how much it changes what is kept."""


class _Change(Struct, eq=False):
    """A rule and its outcome."""

    op: str
    field: str | None
    rule: Rule
    result: int = 0
    error: Exception | None = None
    done: asyncio.Future[None] | None = None
    """Of one that waits for the write before it."""

    def finish(self) -> None:
        """Let its caller go on."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


class _KnownState:
    """What is known of the fields of one session or area."""

    __slots__ = ("area", "cells", "head", "is_busy", "queue", "results", "stored", "weight")

    def __init__(self, area: str) -> None:
        self.area: str = area
        self.queue: list[_Change] = []
        self.is_busy: bool = False
        self.weight: int = 0
        self.forget()

    def forget(self) -> None:
        self.stored: bytes | None = None
        """The head as it is stored; None: unknown, and assumed absent."""
        self.head: StateHead = StateHead()
        self.cells: dict[str, Cell | None] = {}
        self.results: dict[str, int] = {}

    def learn(self, fields: Iterable[str], found: StoredState) -> None:
        if found.head != self.stored:
            self.forget()
            self.stored, self.head = found.head, StateHead.decoded(found.head)
        self.cells.update({name: found.cells.get(name) for name in fields})
        self.results.update(found.results)

    def draft(self) -> StateFields:
        state = StateFields(self.head.size, self.head.versions, self.head.kept)
        state.cells = {name: cell for name, cell in self.cells.items() if cell is not None}
        state.results = OrderedDict(self.results)
        return state


class SharedState(CommandRounds, StateCommands):
    """Changes of state, as rules here and writes in the store."""

    @override
    def forget_all(self) -> None:
        super().forget_all()
        self._states: OrderedDict[str, _KnownState] = OrderedDict()
        self._state_bytes = 0

    # What a store adds

    async def load_state(self, area: str, fields: Sequence[str], ops: Sequence[str]) -> StoredState | None:
        """Return the head, and these fields and results. None if there is no such session or area."""
        raise NotImplementedError

    async def write_state(
        self, area: str, fields: Sequence[str], write: StateWrite
    ) -> StoredState | bool | None:
        """Apply a write in one atomic step: True.

        If it does not apply, return the stored value: these fields, and the results of its changes.

        None if there is no such session or area. False if its principal may not keep so much: nothing was changed.
        """
        raise NotImplementedError

    async def drop_state(self, area: str) -> None:
        """Forget the state of a session, or an area."""
        raise NotImplementedError

    async def _drop_state(self, area: str, error: Exception) -> None:
        """Forget a state whose head cannot be read."""
        self._observer.note("store.poisoned", session=area[:8], error=error)
        await self.drop_state(area)

    def _most_kept(self, head: StateHead) -> float:  # noqa: ARG002
        """Return how much a session or area may keep, as far as it is known here."""
        return inf

    async def _more_room(self, area: str, head: StateHead, least: int) -> bool:  # noqa: ARG002
        """Let a session or area keep at least so many bytes: change its head. False: its principal may not."""
        return False

    async def _carry_over(self, area: str, before: StateHead, after: StateHead) -> None:
        """Carry a write over to sums in another place."""

    def _shrink(self, head: StateHead) -> None:
        """Before a write: lower what the session or area may keep, if it needs much less."""

    # Changes

    @override
    async def change_state(self, area: str, wanted: FieldChange) -> int:
        # A name that cannot be encoded fails here, and no other change with it.
        wanted.field.encode()
        return await self._apply_to_state(area, wanted.op, wanted.field, partial(_changed, wanted))

    async def get_state(self, area: str, field: str) -> Cell | None:
        found = await self.load_state(area, [field], [])
        if found is None:
            raise SessionGone
        return found.cells.get(field)

    async def _apply_to_state(self, area: str, op: str, field: str | None, rule: Rule) -> int:
        """Apply a rule to the fields of a session or area, with others that wait."""
        known = self._states.get(area)
        if known is None:
            known = self._states[area] = _KnownState(area)
        one = _Change(op, field, rule)
        if known.is_busy:
            one.done = asyncio.get_running_loop().create_future()
            known.queue.append(one)
            await one.done
        else:
            known.is_busy = True
            try:
                await self._write(known, [one])
            finally:
                self._release_state(known)
        if one.error is not None:
            raise one.error
        return one.result

    def _release_state(self, known: _KnownState) -> None:
        """After a write: let the changes that wait make the next one."""
        if known.queue:
            self._in_background(self._write_all(known))
        else:
            known.is_busy = False
            self._keep_known(known)

    async def _write_all(self, known: _KnownState) -> None:
        """Let the changes that wait make writes, until none waits."""
        try:
            while changes := known.queue[:_COMBINED]:
                del known.queue[:_COMBINED]
                try:
                    await self._write(known, changes)
                finally:
                    for one in changes:
                        one.finish()
                # The callers go on now, and their next changes are combined with those that wait.
                await asyncio.sleep(0)
        finally:
            self._release_state(known)

    def _keep_known(self, known: _KnownState) -> None:
        """After the writes: count the memory of all that is known, and forget others if all of it takes too much."""
        known.results = {}
        if self._states.get(known.area) is not known:
            return
        self._states.move_to_end(known.area)
        fields = sum(
            _FIELD + len(name) + (len(cell.value) if cell else 0) for name, cell in known.cells.items()
        )
        self._state_bytes += _ENTRY + fields - known.weight
        known.weight = _ENTRY + fields
        while self._state_bytes > _KNOWN_BYTES:
            # A write of it that is under way goes on.
            _, oldest = self._states.popitem(last=False)
            self._state_bytes -= oldest.weight
        self._count_known()

    async def _write(self, known: _KnownState, changes: list[_Change]) -> None:
        """Apply changes; afterwards each of them has its outcome."""
        failed: Exception | None = StoreError("the store was closed")
        try:
            failed = None if await self._write_changes(known, changes) else SessionGone()
        except Unreadable as error:
            failed = error
            with suppress(StoreError):
                await self._drop_state(known.area, error)
        except Exception as error:  # noqa: BLE001
            failed = error
        finally:
            if failed is not None:
                # Whether a write was applied is not known.
                known.forget()
                for one in changes:
                    one.error = failed

    async def _write_changes(self, known: _KnownState, changes: list[_Change]) -> bool:
        """Decide and write until it is applied. False: there is no such session or area."""
        area, ops = known.area, [one.op for one in changes]
        fields = list({one.field: None for one in changes if one.field is not None})
        is_current = False
        while True:
            state, least = self._decide_state(known, changes)
            if least and await self._more_room(area, known.head, least):
                continue
            if state.results.keys() <= known.results.keys():
                if is_current:
                    return True
                # A result without a change: it must not come from what was known or assumed.
                found = await self.load_state(area, fields, ops)
                if found is None:
                    return False
                known.learn(fields, found)
                is_current = True
                continue
            after = self._next_head(known.head, state)
            write = _write_of(known, after, fields, state)
            done = await self.write_state(area, fields, write)
            if done is True:
                before, known.stored, known.head = known.head, write.head, after
                known.cells.update({name: state.cells.get(name) for name in fields})
                await self._carry_over(area, before, after)
                return True
            if done is None:
                return False
            if done is False:
                return await self._one_by_one(known, changes)
            known.learn(fields, done)
            is_current = True

    def _decide_state(self, known: _KnownState, changes: list[_Change]) -> tuple[StateFields, int]:
        """Apply the rules.

        Return the fields after them, and what they would have to keep if that is more than is allowed.
        """
        state, least = known.draft(), 0
        bounds = room(known.area, self._limits, self._most_kept(known.head))
        for one in changes:
            one.error = None
            try:
                one.result = one.rule(state, bounds)
            except TooMuchKept as error:
                one.error, least = error, max(least, error.kept)
            except StateError as error:
                one.error = error
        return state, least

    def _next_head(self, head: StateHead, state: StateFields) -> StateHead:
        after = StateHead(
            head.born or int(self._random.uniform(1, 2**50)),
            head.writes + 1,
            state.bytes,
            state.versions,
            state.kept,
            head.allowed,
            head.lowered,
            head.more,
        )
        self._shrink(after)
        return after

    async def _one_by_one(self, known: _KnownState, changes: list[_Change]) -> bool:
        """The principal may not keep all of it: find the changes for which there is no room."""
        if len(changes) == 1:
            total = self._limits.principal_kept_bytes
            changes[0].error = TooMuchKept(0, total, changes[0].field or "")
            return True
        for one in changes:
            if not await self._write_changes(known, [one]):
                return False
        return True


def _changed(wanted: FieldChange, state: StateFields, bounds: StateRoom) -> int:
    return change(state, wanted, bounds)


def _write_of(known: _KnownState, after: StateHead, fields: Sequence[str], state: StateFields) -> StateWrite:
    put = {
        name: cell
        for name in fields
        if (cell := state.cells.get(name)) is not None and cell != known.cells.get(name)
    }
    return StateWrite(
        known=known.stored or b"",
        absent=[name for name in fields if name not in known.cells],
        head=after.encoded(),
        put=put,
        delete=[name for name in fields if name not in state.cells and known.cells.get(name) is not None],
        results={op: result for op, result in state.results.items() if op not in known.results},
        grows=after.kept - known.head.kept,
    )
