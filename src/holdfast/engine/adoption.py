"""Running the calls of a dead replica again, where the operator and the tool allow it (law 12).

    replica A dies ──▶ its lease ends ──▶ B finds the orphan (`replica.py`) ──▶ store.adopt ──▶ Exchanges.rerun
                                                                                   │
                                    C finds it too ──▶ store.adopt: refused ───────┘ the store gives it to one

Which calls may run again. Only a call whose request was stored when it was claimed: `reruns` is above 0, the store is
shared,
and the tool is declared idempotent. All others end with −31002, outcome unknown. So does a call that has run
`reruns` times already, and a call that this replica cannot run (its tool is unknown here, or no longer idempotent).

The exchange stays the same: its id, its stream, its one terminal message. A client that waits or comes back
sees one stream, in which messages of the first run may be followed by those of the second one.

Why the two runs cannot both write. `store.adopt` is one atomic step: it checks that the exchange still belongs to the
dead owner, makes this replica the owner, and gives the exchange a new fence. Every write of an exchange carries its
fence. If the first owner was only paused, its next write is refused (Fenced), and the outcome of its handler is dropped.

Why the first owner does not run it again itself. A replica that finds its own exchange among the orphans is alive,
and has lost its lease. Its handler still runs, so it leaves the exchange alone.

Why a rerun never ends as "busy". The first run may have had its effect. If all slots are taken, the correct answer
is "outcome unknown". The table of exchanges has the state RERUN for this.
"""

from holdfast.engine.exchanges import Exchanges
from holdfast.engine.replica_messages import ForwardedRequest, decode_forwarded
from holdfast.engine.runtime import Runtime
from holdfast.engine.session import Session
from holdfast.errors import OutcomeUnknown, joined
from holdfast.stores.base import Adopted, Orphan


class Adoption:
    """Takes over the exchanges of dead replicas."""

    def __init__(self, runtime: Runtime, exchanges: Exchanges) -> None:
        self._runtime = runtime
        self._exchanges = exchanges

    def may_adopt(self, orphan: Orphan) -> bool:
        """True if the orphan's request was stored to be run again, and may run once more."""
        return 0 < orphan.runs <= self._runtime.settings.reruns

    async def adopt(self, orphan: Orphan) -> None:
        """Run an orphan again, unless another replica does. If it cannot run here, it ends as outcome unknown."""
        if self._runs_here(orphan):
            return
        self._exchanges.claiming += 1
        try:
            adopted = await self._runtime.store.adopt(orphan, tag=self._runtime.random.tag())
        finally:
            self._exchanges.claiming -= 1
        if adopted is not None:
            await self._begin(orphan, adopted)

    def _runs_here(self, orphan: Orphan) -> bool:
        """True if it is an exchange of this process, from before its lease ended: its handler still runs."""
        session = self._runtime.sessions.get(orphan.session)
        return session is not None and orphan.stream in session.exchanges

    async def _begin(self, orphan: Orphan, adopted: Adopted) -> None:
        runtime = self._runtime
        session = runtime.local_session(adopted.record)
        forwarded = decode_forwarded(adopted.claim.payload)
        if forwarded is None or not await self._may_run(forwarded, session):
            correlation = runtime.random.token(6)
            runtime.observer.note(
                "exchange.reaped", session=session.name, owner=orphan.owner, correlation=correlation
            )
            await self._exchanges.give_up(session, adopted, joined(OutcomeUnknown(), correlation))
            return
        runtime.observer.note(
            "exchange.adopted", session=session.name, owner=orphan.owner, run=orphan.runs + 1
        )
        await self._exchanges.rerun(session, adopted, forwarded)

    async def _may_run(self, forwarded: ForwardedRequest, session: Session) -> bool:
        try:
            return await self._runtime.back.is_idempotent(forwarded.request, session)
        except Exception as error:  # noqa: BLE001 - an author's code decides which tools a client may call
            self._runtime.observer.note("adoption.failed", session=session.name, error=error)
            return False
