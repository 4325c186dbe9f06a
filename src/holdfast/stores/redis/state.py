"""State of sessions and areas, and tasks.

**Allowances.** The kept data of a session or a handle is its state and its subscriptions. The principal has one total for all of it
(`Limits.principal_kept_bytes`), in the shared slot. A script sees one slot, so it cannot read the total when it writes. Instead the shared slot
grants each session and handle an allowance, and a script lets it keep no more than that. Where the allowance is too small, the script changes
nothing and replies 'room'; the caller asks the shared slot (`grant`), tells the session (`granted`) and sends its command again
(`Core.keeping`). It asks for a step more than it needs, so that not every field costs this. The sum of a principal's grants never exceeds its
total, so its kept data does not either.

A grant is a number of bytes, not a difference, so that it may be sent twice. Granted bytes that are no longer needed are given back: the session
lowers its own allowance first and reports it afterwards. These messages can arrive in any order; each of them counts how often the session
has lowered its allowance. `grant` never lowers, and replies with the newest count that the shared slot knows; a report counts there only
if its count is newer; `granted` counts in the session only if its count is not older than the session's own. So the shared slot always has at
least the allowance of the session. A lost message leaves it with more than that, until the session's next grant or report, or its end.

A version is a counter of the owner, so a field that was deleted and set again has another one, and a compare-and-set cannot mistake it. An
operation has a name: sent again, it finds its result, among the last 256.
"""

from collections.abc import Collection
from typing import Any, Final

from typing_extensions import override

from holdfast.core.rules.tasks import StoredTask, TaskBounds
from holdfast.errors import SessionGone, StateError
from holdfast.stores.areas import is_own, most_areas, most_bytes, most_of_one
from holdfast.stores.base import Cell, OrphanTask
from holdfast.stores.kept import too_much
from holdfast.stores.redis.core import Core, flag, hashed, milliseconds
from holdfast.stores.rules import lease_ended
from holdfast.stores.tasks import Swapped, TaskCommands

_ALL: Final = 10**9
"""More tasks than a store has."""
_STRAYS: Final = 20
_SWAPPED: Final = {b"ok": Swapped.DONE, b"differs": Swapped.DIFFERS, b"full": Swapped.FULL}


class StateMethods(Core, TaskCommands):
    """Fields with versions, areas that belong to a principal, tasks."""

    async def open_area(self, area: str, principal: str, ttl: float) -> bool:
        """Take a place in the index, then begin the area."""
        own_most = most_of_one(area, principal, self._limits)
        place = (
            area,
            hashed(principal),
            milliseconds(ttl),
            most_areas(area, self._limits),
            "" if own_most is None else own_most,
            flag(is_own(area)),
        )
        if (await self.index("reserve_area", *place))[0] != b"ok":
            return False
        return bool((await self.run("open_area", area, principal, milliseconds(ttl)))[0] == b"ok")

    async def find_area(self, area: str, principal: str) -> bool:
        """Return True if this principal has such an area; its time starts again, here and in the index."""
        reply = await self.run("find_area", area, principal)
        if reply[0] != b"ok":
            return False
        await self.index("seen_area", area, hashed(principal), reply[2])
        return True

    async def get_state(self, area: str, field: str) -> Cell | None:
        """Return a field."""
        reply = await self.run("get", area, field)
        self._check(reply, field, area)
        return Cell(reply[2], reply[3]) if reply[0] == b"ok" else None

    async def set_state(
        self, area: str, field: str, value: bytes | None, *, op: str, version: int | None = None
    ) -> int:
        """Set or delete a field."""
        given = ("0", b"") if value is None else ("1", value)
        expected = "" if version is None else version
        most = most_bytes(area, self._limits)
        reply = await self.keeping("set", area, op, field, *given, expected, most)
        self._check(reply, field, area)
        return int(reply[2])

    async def add_state(self, area: str, field: str, by: int, *, op: str) -> int:
        """Add to a counter."""
        most = most_bytes(area, self._limits)
        reply = await self.keeping("add", area, op, field, by, most)
        self._check(reply, field, area)
        return int(reply[2])

    def _check(self, reply: list[Any], field: str, area: str) -> None:
        match reply[0]:
            case b"gone":
                raise SessionGone
            case b"full":
                limit = most_bytes(area, self._limits)
                raise StateError(f"state is limited to {limit} bytes; {field!r} would exceed it")
            case b"total":
                raise too_much(field, self._limits)
            case b"no integer":
                raise StateError(f"state field {field!r} does not hold an integer of 64 bits")
            case _:
                return

    # Tasks

    @override
    async def load_task(self, key: str) -> StoredTask | None:
        principal, value, version, ends, owner = await self.index("get_task", key)
        if principal is None:
            return None
        return StoredTask(
            principal[1:].decode(), value, int(version), int(ends) / 1000, (owner or b"").decode()
        )

    @override
    async def swap_task(
        self, key: str, before: StoredTask | None, after: StoredTask, most: TaskBounds | None
    ) -> Swapped:
        known = 0 if before is None else before.version
        facts = (after.value, after.version, milliseconds(after.expires), after.owner)
        script = "swap_task_end" if most is None else "swap_task"
        [done] = await self.index(script, key, known, f"p{after.principal}", *facts, *(most or ()))
        if done == b"dead":
            raise lease_ended()
        return _SWAPPED[done]

    async def orphan_tasks(self, known: Collection[str] | None = None) -> list[OrphanTask]:
        """Return some of the tasks of dead replicas, and of those that this one does not run."""
        most = _ALL if known is None else len(known)
        reply = await self.index("orphan_tasks", most)
        strays = [key for key in reply[3] if key.decode() not in (known or ())]
        if strays:
            reply = await self.index("orphan_tasks", most, *strays[:_STRAYS])
        return [
            OrphanTask(key.decode(), principal[1:].decode(), owner.decode(), Cell(value, version))
            for key, principal, owner, value, version in reply[2]
        ]
