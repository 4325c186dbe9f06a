"""The commands that change state, once for every store. The rules are in `core/rules/state.py`."""

from limpet.core.rules.state import FieldChange


class StateCommands:
    """set_state, add_state."""

    async def change_state(self, area: str, wanted: FieldChange) -> int:
        """Apply the rule `change` to the fields of a session or area in one atomic step.

        Raises:
            StateError: what the rule raises; nothing was changed.
            SessionGone: there is no such session or area.
        """
        raise NotImplementedError

    async def set_state(
        self, area: str, field: str, value: bytes | None, *, op: str, version: int | None = None
    ) -> int:
        return await self.change_state(area, FieldChange(op, field, value, version=version))

    async def add_state(self, area: str, field: str, by: int, *, op: str) -> int:
        return await self.change_state(area, FieldChange(op, field, by=by))
