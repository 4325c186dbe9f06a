"""Running again what a dead replica ran, where its operator and its tool allow it (law 12).

The exchange stays the one it was: its id, its stream, its one terminal message. What is new is
the fence, so that an owner that was only frozen can write nothing more beside the second run.
"""

from holdfast.engine.exchanges import Exchanges
from holdfast.engine.forwarded import ForwardedRequest, decode_forwarded
from holdfast.engine.runtime import Runtime
from holdfast.engine.session import Session
from holdfast.stores.base import Adopted, Orphan


class Adoption:
    """Adopts orphans."""

    def __init__(self, runtime: Runtime, exchanges: Exchanges) -> None:
        self._runtime = runtime
        self._exchanges = exchanges

    def may_adopt(self, orphan: Orphan) -> bool:
        """Tell whether an orphan was kept to be run again, and not run often enough already."""
        return 0 < orphan.runs <= self._runtime.settings.reruns

    async def adopt(self, orphan: Orphan) -> None:
        """Run an orphan again, unless another replica does; one that cannot run here ends with the honest error."""
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
        """Tell whether it is our own of before our lease ended: it goes on, and needs no second run."""
        session = self._runtime.sessions.get(orphan.session)
        return session is not None and orphan.stream in session.exchanges

    async def _begin(self, orphan: Orphan, adopted: Adopted) -> None:
        runtime = self._runtime
        session = runtime.local_session(adopted.record)
        forwarded = decode_forwarded(adopted.claim.payload)
        if forwarded is None or not self._may_run(forwarded, session):
            runtime.observer.note("exchange.reaped", session=session.name, owner=orphan.owner)
            await self._exchanges.give_up(session, adopted)
            return
        runtime.observer.note(
            "exchange.adopted", session=session.name, owner=orphan.owner, run=orphan.runs + 1
        )
        await self._exchanges.rerun(session, adopted, forwarded)

    def _may_run(self, forwarded: ForwardedRequest, session: Session) -> bool:
        try:
            return self._runtime.back.is_idempotent(forwarded.request, session)
        except Exception as error:  # noqa: BLE001 - an author's code decides which tools a client may call
            self._runtime.observer.note("adoption.failed", session=session.name, error=error)
            return False
