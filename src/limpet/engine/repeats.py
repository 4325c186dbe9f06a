"""A POST with the id and the bytes of one that is in flight: is it a repeat of it, or a duplicate? See decision 10.

A client whose connection broke sends its request again. That is a repeat: it attaches to the call that runs, and the
handler does not run twice. The same bytes while the first connection still waits are a duplicate, and are refused.
So the question is whether the first POST's reader is lost: its connection is gone, or was silent for longer than
one keep-alive. Only the replica that has the reader can know.

    POST again ──▶ replica B ──▶ store.claim: Duplicate, and the reader is at A
                       │
                       ├── store.probe ──────▶ wake-up ──▶ replica A: is its reader there?
                       │                                       │ writes a keep-alive, waits for a break
                       └── asks again, until ◀── store.vouch ──┘ "alive" or "lost"
                             lost: B attaches the POST to the call's log
                             alive: B refuses the POST as a duplicate

The POST waits meanwhile, and no byte of an answer is sent.

An exchange that has ended and whose answer a connection is taking is asked for in the same way. If its client takes the
answer meanwhile, its id is free: the new POST is another request, and claims again (`Earlier.OVER`). A plain answer
leaves before its end is stored: a client that has it and uses the id again can be a moment faster than the end. Later
than that moment, the POST was sent while the call ran: a duplicate. If the claim of the first POST was given back,
nothing of it ran: this POST claims the id and starts (`Earlier.WITHDRAWN`).

A forwarded request has its connection at one replica and runs at another, its home. If the connection ends before the
home has replied, the store knows it (`give_back`), and the home reads it there: the reader is lost.

Why the wait ends. The other replica answers; or the exchange ends; or that replica's lease ends, and the store removes
its readers. A replica that renews its lease and never answers gets the time after which it must have lost
its lease. After that the reader counts as lost.

How a replica knows that its reader is there, before a keep-alive interval has passed. It writes a keep-alive now. A
connection whose other side is gone breaks by the write. If the other side vanished without closing (half open), the
bytes are not acknowledged: the POST waits until they are, or until the reader was silent for one keep-alive interval.
Where acknowledgements cannot be seen (other servers and systems), a connection that does not break counts as alive.

Why a repeat is not refused as a duplicate of itself. The replica that had the reader may not know of the break yet. So
it waits a moment before it says "alive". A reader that it does not know is lost.

Why a wrong answer does no harm. "Lost" for a reader that is alive: the new POST supersedes it, and the call still runs
once. "Alive" for a reader that is gone: the repeat is refused, the call continues, and the client may repeat again.
"""

import asyncio
from enum import Enum
from math import inf
from typing import Final

from limpet.core.fate import Fate
from limpet.engine.reader import End, Reader
from limpet.engine.runtime import Runtime
from limpet.engine.session import Session
from limpet.errors import StoreError
from limpet.stores.base import Duplicate, Probed

_NEWS_SECONDS: Final = 0.1
"""How long this process may take to learn of a broken connection after its client has noticed the break."""
_LOOK_SECONDS: Final = (0.02, 0.5)
"""The first and the longest pause between two checks for the answer of another replica."""


class Earlier(Enum):
    """The state of the exchange that has the id and the bytes of a new request."""

    LOST = "lost"
    """Its reader is lost: the new request is a repeat, and reads its log."""
    ALIVE = "alive"
    """Its reader is there: the new request is a duplicate."""
    OVER = "over"
    """Its client has taken the answer: the id is free."""
    WITHDRAWN = "withdrawn"
    """Its claim was given back, and nothing of it ran: the id is free."""


class Repeats:
    """Finds out whether the reader of an exchange is lost, for this replica and for others."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._answering: set[tuple[str, str]] = set()

    async def look(self, session: Session, duplicate: Duplicate, until: float) -> Earlier:
        """Return the state of an exchange that has a reader, or had one when the POST claimed its id.

        Until the time `until` an exchange that has ended may have been answered before the POST was sent.
        """
        if not duplicate.has_reader:
            return Earlier.LOST
        if not _is_here(session, duplicate.stream):
            # Another replica has the reader, or the exchange has ended since the claim.
            return await self._look_elsewhere(session, duplicate, until)
        readers = session.readers.get(duplicate.stream, ())[-1:]
        if await self._check_lost_here(session, duplicate.stream):
            return Earlier.LOST
        is_taken = duplicate.finished and any(reader.end is End.FINISHED for reader in readers)
        return Earlier.OVER if is_taken else Earlier.ALIVE

    async def _check_lost_here(self, session: Session, stream: str) -> bool:
        readers = session.readers.get(stream)
        if readers:
            return await self._watch_reader(readers[-1])
        # On a pooled connection the repeat can arrive before this process learns of the break.
        exchange = session.exchanges.get(stream)
        if exchange is not None and exchange.writer.is_left is None:
            # The replica that has forwarded it has the connection, and tells the store when it ends.
            probed = await self._runtime.store.probe(session.record.key, stream)
            return probed is not None and probed.withdrawn
        return exchange is not None and await exchange.writer.wait_abandoned(_NEWS_SECONDS)

    async def _watch_reader(self, reader: Reader) -> bool:
        """Wait until the reader has ended, was silent for one keep-alive, or has taken the bytes written to it now.

        True if its client has lost it.
        """
        keep_alive = self._runtime.settings.times.keep_alive
        reader.nudge()
        while self._runtime.clock.now() - reader.delivered_at <= keep_alive:
            if await reader.ended.wait(_NEWS_SECONDS):
                return reader.end is not End.FINISHED
            if reader.is_taken is None or reader.is_taken() is not False:
                return False
        return True

    async def _look_elsewhere(self, session: Session, duplicate: Duplicate, until: float) -> Earlier:
        """Probe a stream whose reader is not in this process until the store says that the reader is there, or lost.

        An exchange that has ended since the claim counts as lost if its answer is kept: the repeat reads that.
        """
        store, now, key = self._runtime.store, self._runtime.clock.now, session.record.key
        times = self._runtime.settings.times
        deadline = now() + times.loop_patience + 2 * times.lease + times.sweep
        pause, longest = _LOOK_SECONDS
        # The claim has seen it running before `until`.
        asked_at, seen_at = now(), -inf
        probed = first = await store.probe(key, duplicate.stream)
        while probed is not None and first is not None and (probed.running or _is_being_taken(probed)):
            # The store has a reader for this replica that is unknown here: it was never detached. Or it is that of a
            # forwarded request, which has ended: the replica with the connection reports its end.
            is_unknown = probed.running and probed.reader in {"", store.replica}
            if is_unknown or now() > deadline:
                return Earlier.LOST
            if probed.word != first.word:
                return Earlier.ALIVE if probed.word % 2 else Earlier.LOST
            seen_at = asked_at
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
            asked_at = now()
            probed = await store.probe(key, duplicate.stream)
        if duplicate.finished:
            return Earlier.OVER if probed is None or not probed.kept else Earlier.LOST
        is_recent = seen_at <= until and until > -inf
        if probed is None or not (probed.kept or probed.withdrawn):
            # It has ended. If its answer could not be written, the answer is kept a moment later.
            await asyncio.sleep(_NEWS_SECONDS)
            probed = await store.probe(key, duplicate.stream)
        if probed is not None and (probed.kept or probed.withdrawn):
            return Earlier.LOST if probed.kept else Earlier.WITHDRAWN
        return Earlier.OVER if is_recent else Earlier.ALIVE

    async def answer(self, session: Session, stream: str) -> None:
        """Tell another replica whether a reader of this process is alive."""
        key = session.record.key
        if (key, stream) in self._answering or not _is_here(session, stream):
            return
        self._answering.add((key, stream))
        try:
            alive = not await self._check_lost_here(session, stream)
            await self._runtime.store.vouch(key, stream, alive=alive)
        except StoreError:
            # The replica that asked probes again.
            return
        finally:
            self._answering.discard((key, stream))


def _is_being_taken(probed: Probed) -> bool:
    """True if an exchange has ended, and a connection is taking its answer."""
    return probed.kept and bool(probed.reader)


def _is_here(session: Session, stream: str) -> bool:
    """True if a stream has its reader in this process, or a POST that waits to become it."""
    exchange = session.exchanges.get(stream)
    is_waiting = exchange is not None and exchange.writer.fate is not Fate.GONE
    return is_waiting or bool(session.readers.get(stream))
