"""The store object: its backend for sessions, state, tasks, and the shortcut for plain calls.

The docstring of the package explains the design.
"""

from typing_extensions import override

from limpet.config import Limits
from limpet.core.empty_table import EMPTY
from limpet.core.ledger import Ledger
from limpet.core.lifecycle import SessionState
from limpet.core.records import Claim, Claimed, Closed, Duplicate, Refusal
from limpet.core.rules import calls
from limpet.errors import SessionGone
from limpet.ports import Clock
from limpet.stores.base import AtOnce, OneProcess, Totals
from limpet.stores.memory.backend import MemoryBackend
from limpet.stores.memory.state import KeptFields, MemoryState
from limpet.stores.memory.tasks import MemoryTasks, TaskMethods


class MemoryStore(MemoryBackend, MemoryState, TaskMethods, OneProcess):
    """All data is in the memory of this process, and is lost when the process ends."""

    def __init__(self, limits: Limits = Limits(), clock: Clock | None = None) -> None:
        OneProcess.__init__(self, clock)
        MemoryBackend.__init__(self, limits, f"{self.replica}.1")
        MemoryState.__init__(self, limits, self.now)
        self._tasks = MemoryTasks(self.now)

    def __repr__(self) -> str:
        return f"<MemoryStore {len(self._sessions)} sessions, {self._bytes} log bytes>"

    async def aclose(self) -> None:
        self._tasks.clear()
        self._areas.clear()
        self.forget_sessions()

    async def sweep(self) -> list[Closed]:
        self._tasks.sweep()
        self._areas.sweep()
        self._lingering.sweep()
        return await super().sweep()

    async def totals(self) -> Totals:
        detached = sum(doc.state is SessionState.DETACHED for doc in self._sessions.values())
        return Totals(len(self._sessions), detached, self._bytes, self._kept.bytes)

    def _fields(self, area: str) -> KeptFields:
        if (fields := self._areas.get(area)) is not None:
            return fields
        if (doc := self._sessions.get(area)) is None:
            raise SessionGone
        if doc.state_fields is None:
            doc.state_fields = KeptFields(doc.record.principal)
        return doc.state_fields

    @override
    def _keep(self, area: str, principal: str, change: int) -> None:
        if (doc := self._sessions.get(area)) is None:
            super()._keep(area, principal, change)
        else:
            doc.kept += change
            self._count_kept(doc)

    # A plain call: the rule, applied to the document

    @property
    def at_once(self) -> AtOnce | None:
        """This store, because no call of it waits; None if a subclass or a test has replaced one of the three calls."""
        usual = (
            (self.open, MemoryStore.open),
            (self.claim, MemoryStore.claim),
            (self.settle, MemoryStore.settle),
        )
        return self if all(getattr(own, "__func__", None) is usual for own, usual in usual) else None

    def charge_all(self, ledger: Ledger) -> None:
        """Charge the state, subscriptions and tasks of principals to a ledger."""
        self._kept.charged.ledger = self._tasks.charged.ledger = ledger

    def claim_nowait(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        doc = self._sessions.get(key)
        if doc is None:
            return Refusal.NO_SESSION
        limits, now = self._limits, self.now
        claimed = calls.claim(doc, principal, claim, self.me, limits.running + limits.queued, now())
        if type(claimed) is not Claimed:
            self.applied(doc)
        return claimed

    def settle_nowait(self, key: str, stream: str, fence: int) -> None:
        doc = self._sessions.get(key)
        if doc is None:
            raise SessionGone
        now = self.now
        calls.end_plain(doc, stream, fence, now())
        if not doc.ids:
            doc.ids = EMPTY
        if not doc.exchanges:
            doc.exchanges = EMPTY
        if doc.told or doc.hint < doc.listed:
            self.applied(doc)
