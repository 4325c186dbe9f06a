"""State of sessions and areas (lua/state.lua), and tasks.

**Allowances.** The kept data of a session or a handle is its state and its subscriptions. The principal has one total
for all of it (`Limits.principal_kept_bytes`), in the shared slot. A script sees one slot, so it cannot read the total
when it writes. Instead the shared slot grants each session and handle an allowance, which is in the head of its state,
and the rule lets it keep no more than that. Where the allowance is too small, this process asks the shared slot
(`grant`) before it writes. It asks for a step more than it needs, so that not every field costs this. The sum of a
principal's grants never exceeds its total, so its kept data does not either.

A grant is a number of bytes, not a difference, so that it may be sent twice. Granted bytes that are no longer needed
are given back: a write lowers the allowance first, and `lower` reports it afterwards. These messages can arrive in any
order; each of them counts how often the session has lowered its allowance. `grant` never lowers, and replies with the
newest count that the shared slot knows; a report counts there only if its count is newer. So the shared slot always has
at least the allowance of the session. A lost message leaves it with more than that, until the session's next grant or
report, or its end.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from typing_extensions import override

from limpet.core.records import SessionRecord
from limpet.core.rules.areas import AreaBounds, is_own
from limpet.core.rules.state import Cell, hold
from limpet.core.rules.tasks import StoredTask, TaskBounds
from limpet.errors import SessionGone, StateError, StoreError
from limpet.stores.base import OrphanTask
from limpet.stores.base.replicas import lease_ended
from limpet.stores.base.tasks import Swapped, TaskPart
from limpet.stores.redis.core import Core, flag, hashed, milliseconds
from limpet.stores.redis.link import Argument
from limpet.stores.shared.state import SharedState, StateHead, StateWrite, StoredState

_ALL: Final = 10**9
"""More tasks than a store has."""
_STRAYS: Final = 20
_LEAST_STEP: Final = 1_024
_SWAPPED: Final = {b"ok": Swapped.DONE, b"differs": Swapped.DIFFERS, b"full": Swapped.FULL}


def _names(ops: Sequence[str], fields: Sequence[str]) -> list[Argument]:
    return [*(f"o:{op}" for op in ops), *(f"f:{field}" for field in fields)]


def _stored(reply: list[Any], ops: Sequence[str], fields: Sequence[str]) -> StoredState:
    """Return the values that a script has found under these names."""
    split = len(ops) + 1
    results = zip(ops, reply[1:split], strict=True)
    cells = zip(fields, reply[split:], strict=True)
    parts = [(name, *found.split(b" ", 1)) for name, found in cells if found is not None]
    return StoredState(
        reply[0] or b"",
        {name: Cell(value, int(version)) for name, version, value in parts},
        {op: int(result) for op, result in results if result is not None},
    )


class StateMethods(Core, SharedState, TaskPart):
    """Fields with versions, areas that belong to a principal, tasks."""

    async def open_area(self, area: str, principal: str, ttl: float) -> bool:
        """Take a place in the index, then begin the area."""
        most, own_most = AreaBounds.of(area, principal, self._limits)
        bounds = (most, "" if own_most is None else own_most)
        place = (area, hashed(principal), milliseconds(ttl), *bounds, flag(is_own(area)))
        if (await self.index("reserve_area", *place))[0] != b"ok":
            return False
        done = await self.send("open_area", area, (self.told, principal, milliseconds(ttl)))
        return bool(done[0] == b"ok")

    async def find_area(self, area: str, principal: str) -> bool:
        """Return True if this principal has such an area; its time starts again, here and in the index."""
        found, *due = await self.send("find_area", area, (self.told, principal))
        if found != b"ok":
            return False
        await self.index("seen_area", area, hashed(principal), *due)
        return True

    @override
    async def load_state(self, area: str, fields: Sequence[str], ops: Sequence[str]) -> StoredState | None:
        reply = await self.send("load_state", area, (self.told, "h", *_names(ops, fields)))
        return _stored(reply, ops, fields) if reply else None

    @override
    async def write_state(
        self, area: str, fields: Sequence[str], write: StateWrite
    ) -> StoredState | bool | None:
        ops = list(write.results)
        read = [*write.absent, *(field for field in fields if field not in write.absent)]
        names, words = _names(ops, read), list[Argument]()
        for field, (value, version) in write.put.items():
            words += f"f:{field}", b"%d %b" % (version, value)
        for op, result in write.results.items():
            words += f"o:{op}", str(result)
        deleted = _names((), write.delete)
        facts = (self.told, write.known, write.head, len(ops) + len(write.absent), len(names), *names)
        reply = await self.send("write_state", area, (*facts, len(words), *words, *deleted))
        if type(reply) is int:
            return True if reply else None
        return _stored(reply, ops, read)

    @override
    async def _drop_state(self, area: str, error: Exception) -> None:
        """Forget all of the session: what its subscriptions keep is in its state."""
        await self._drop(area, error)

    # Allowances

    @override
    def _most_kept(self, head: StateHead) -> float:
        return head.allowed

    @override
    async def _more_room(self, area: str, head: StateHead, least: int) -> bool:
        life, principal, record = await self.send("state_owner", area, (self.told,))
        if principal is None and record is None:
            raise SessionGone
        whose = (
            principal.decode()
            if record is None
            else msgspec.json.decode(record, type=SessionRecord).principal
        )
        best, most = least + min(self._step, max(least // 2, _LEAST_STEP)), self._limits.principal_kept_bytes
        done, *grant = await self.index("grant", area, hashed(whose), least, best, head.lowered, most, life)
        if done == b"none":
            raise SessionGone
        if done == b"full":
            return False
        # A newer count: it was lowered, and what is known here is older.
        _, allowed, lowered = grant
        head.allowed = allowed if lowered > head.lowered else max(head.allowed, allowed)
        head.lowered = lowered
        return True

    @override
    def _shrink(self, head: StateHead) -> None:
        if head.allowed - head.kept > 2 * self._step:
            head.allowed, head.lowered = head.kept + self._step, head.lowered + 1

    @override
    async def _carry_over(self, area: str, before: StateHead, after: StateHead) -> None:
        if after.lowered != before.lowered:
            with suppress(StoreError):
                await self.index("lower", area, after.allowed, after.lowered)

    async def _hold(self, key: str, uri: str, *, holds: bool) -> bool:
        """Let a session keep the bytes of a subscription, or give them back. A second call changes nothing.

        False: it may not, or there is none.
        """
        op, mark = self._random.token(12), f"\0{hashed(uri)}"
        try:
            await self._apply_to_state(
                key, op, mark, lambda state, room: hold(state, op, mark, uri, room, holds=holds)
            )
        except (SessionGone, StateError):
            return False
        return True

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
        most = _ALL if known is None else len(known)
        reply = await self.index("orphan_tasks", most)
        strays = [key for key in reply[3] if key.decode() not in (known or ())]
        if strays:
            reply = await self.index("orphan_tasks", most, *strays[:_STRAYS])
        return [
            OrphanTask(key.decode(), principal[1:].decode(), owner.decode(), Cell(value, version))
            for key, principal, owner, value, version in reply[2]
        ]
