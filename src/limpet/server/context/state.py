"""The state of a session, a handle or a principal: named fields with JSON values.

Each method changes one field in one atomic step of the store, so concurrent calls lose no change (law 11). There is
no method that loads or saves all fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.errors import StateError
from limpet.ports import Random
from limpet.server.functions.content import jsonable

if TYPE_CHECKING:
    from limpet.stores.base import StatePart

Begin = Callable[[], Awaitable[None]]
MAX_TRIES: Final = 16
"""Attempts of a compare-and-set before `update` gives up."""

_encode: Final = msgspec.json.Encoder(enc_hook=jsonable).encode
_decode: Final = msgspec.json.decode


class State:
    """The fields of one session, handle or principal. Every method is one atomic step in the store.

    `begin` is awaited before the first step: the state of a principal is created by its first use.

    Raises:
        StateError: the state would exceed its limit (`Limits.state_bytes`); it was not changed.
        SessionGone: the session is closed.
        StoreUnavailable: the store did not work for `Limits.store_seconds`. A change may have been made or not: its
            last attempt may have lost only its reply.
    """

    __slots__ = ("_area", "_begin", "_random", "_store")

    def __init__(self, store: StatePart, random: Random, area: str, begin: Begin | None = None) -> None:
        self._store = store
        self._random = random
        self._area = area
        self._begin = begin

    def __repr__(self) -> str:
        return f"<State of {self._area[:8]}>"

    async def _ready(self) -> None:
        if self._begin is not None:
            await self._begin()
            self._begin = None

    async def get(self, field: str, default: Any = None) -> Any:
        """Return the value of a field, or the default if the field does not exist."""
        await self._ready()
        cell = await self._store.get_state(self._area, field)
        return default if cell is None else _decode(cell.value)

    async def set(self, field: str, value: object) -> None:
        """Set a field to a value that can be encoded as JSON."""
        await self._ready()
        await self._store.set_state(self._area, field, _encode(value), op=self._op())

    async def delete(self, field: str) -> None:
        """Delete a field. A missing field is not an error."""
        await self._ready()
        await self._store.set_state(self._area, field, None, op=self._op())

    async def set_if_absent(self, field: str, value: object) -> bool:
        """Set a field if it does not exist. Return True if this call set it."""
        await self._ready()
        version = await self._store.set_state(self._area, field, _encode(value), op=self._op(), version=0)
        return version >= 0

    async def incr(self, field: str, by: int = 1) -> int:
        """Add to a counter, which starts at 0, and return its new value.

        Raises:
            StateError: the field does not hold an integer.
        """
        await self._ready()
        return await self._store.add_state(self._area, field, by, op=self._op())

    async def update(self, field: str, fn: Callable[[Any], Any], default: Any = None) -> Any:
        """Replace a field's value by `fn(value)` and return the new one.

        `fn`, plain or async, gets `default` where there is no value, and runs again when another
        call changed the field meanwhile: it must have no other effect.

        Raises:
            StateError: in each of 16 attempts another call changed the field first.
        """
        await self._ready()
        for _ in range(MAX_TRIES):
            cell = await self._store.get_state(self._area, field)
            value = fn(default if cell is None else _decode(cell.value))
            if inspect.isawaitable(value):
                value = await value
            version = cell.version if cell is not None else 0
            done = await self._store.set_state(
                self._area, field, _encode(value), op=self._op(), version=version
            )
            if done >= 0:
                return value
        raise StateError(
            f"state field {field!r}: other calls changed it first in {MAX_TRIES} attempts; this call did not change it"
        )

    def _op(self) -> str:
        return self._random.token(12)
