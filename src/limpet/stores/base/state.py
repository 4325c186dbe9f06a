"""State: fields with versions, of a session or of an area that belongs to a principal.

A store without state inherits `NoState`. Then `ctx.state` and `ctx.state_for` raise `ConfigError`, and a server with
`state="principal"` does not start.
"""

from typing import Any, NoReturn, Protocol

from limpet.core.rules.state import Cell
from limpet.errors import ConfigError


class StatePart(Protocol):
    """The calls for state. An area is named by the key of a session, or by its own name (`open_area`)."""

    async def open_area(self, area: str, principal: str, ttl: float) -> bool:
        """Create an area: state under a name, deleted after `ttl` seconds without use.

        If the principal has the area already, its time starts again and True is returned, at any replica. False if
        there is no room, or the name belongs to another principal. A name made by
        `limpet.core.rules.areas.own_area` is the principal's own state; its limits are separate from those of
        handles.
        """

    async def find_area(self, area: str, principal: str) -> bool:
        """Return True if this principal has such an area; its time starts again.

        False if it is unknown, expired or another principal's. The three cannot be distinguished.
        """

    async def get_state(self, area: str, field: str) -> Cell | None:
        """Return a field; None if it is absent.

        Raises:
            SessionGone: the session is unknown or closed, or the area forgotten.
        """

    async def set_state(
        self, area: str, field: str, value: bytes | None, *, op: str, version: int | None = None
    ) -> int:
        """Set or (None) delete a field and return its new version; with `version` only if it still has that one.

        Returns 0 after a deletion, and −1 if the version differs. A field that comes back after a deletion has a
        version that it never had. `op` names the operation: sent again it returns its first result.

        Raises:
            StateError: over the limit of the area, or of its principal's total (`limpet.core.rules.state`); nothing
                was changed.
            SessionGone: as `get_state`.
        """

    async def add_state(self, area: str, field: str, by: int, *, op: str) -> int:
        """Add to a counter (absent counts as 0) and return its new value. `op` as in `set_state`.

        Raises:
            StateError: the field does not hold an integer, or the limit of state is reached; nothing was changed.
            SessionGone: as `get_state`.
        """


class NoState:
    """For a store that keeps no state: every call raises an error that says so."""

    async def open_area(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        refuse_state(self)

    async def find_area(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        refuse_state(self)

    async def get_state(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        refuse_state(self)

    async def set_state(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        refuse_state(self)

    async def add_state(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        refuse_state(self)


def refuse_state(store: object) -> NoReturn:
    """Raise the error of a store without state."""
    raise ConfigError(
        f'{type(store).__name__} keeps no state: ctx.state, ctx.state_for and state="principal" need a store that '
        "does, such as memory:, sqlite:, redis: or postgres:"
    )
