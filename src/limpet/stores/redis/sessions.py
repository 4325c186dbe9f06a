"""Sessions: opened with a place in the shared slot, found, evicted, swept, closed once (lua/index.lua).

The shared slot knows the sessions and the earliest time to examine each. A session's own slot decides whether it is
due, or idle enough to be evicted, in the step that closes it. So eviction asks for candidates, examines each,
corrects the shared slot, and tries to close the oldest; if its client came back meanwhile, it takes the next.

**The shared slot is behind, never wrong for long.** A commit that lowers the hint of a session, or changes what the
shared slot knows of it, is followed by a report (`applied`). What the slot knew before does not matter: other replicas
have reported too, and sweeps have raised the hint. A report that fails, or whose commit has an unknown fate, makes the
session doubtful: the next sweep compares it. A replica may die before its report, and a failover of the slot may lose
it. So each sweep also compares some other sessions, all of them in turn (`_compare`).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final
from weakref import WeakValueDictionary

from typing_extensions import override

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput, SessionState
from limpet.core.records import Closed, Refusal, SessionRecord, Status
from limpet.core.rules import life, streams
from limpet.core.rules.document import At, Document
from limpet.errors import StoreError
from limpet.stores.base import LINGER_SECONDS, LINGER_SHARE, UNREPORTED_SECONDS, Listing, Totals
from limpet.stores.redis.core import Room, flag, hashed, milliseconds
from limpet.stores.redis.documents import RedisDocuments
from limpet.stores.redis.state import StateMethods
from limpet.stores.shared.commit import PLACES
from limpet.stores.shared.draft import SharedDocument, opened
from limpet.stores.shared.fields import STATES, Unreadable
from limpet.stores.shared.shelf import Erasure
from limpet.stores.shared.state import StateHead

_HINT, _STATE = PLACES["hint"], PLACES["state"]
_BATCH: Final = 100
_COMPARED: Final = 50
"""Sessions that a sweep compares with the shared slot, at most every _COMPARE_SECONDS: 100,000 sessions take a
replica half an hour."""
_COMPARE_SECONDS: Final = 1.0
_DOUBTS: Final = 10_000
"""Doubtful sessions that are remembered."""
_MADE_SECONDS: Final = 30.0
"""A place in the shared slot whose session does not exist is examined after this time: it may be about to be made."""
_LOOKS: Final = 64
_EVICTIONS: Final = 5
"""How often a session is evicted for a new one before the store is full: other new sessions may take the place."""


def _examined(doc: Document, now: float) -> tuple[SessionInput | None, float, SessionState]:
    """Give a session its next hint; return why it ends now, the hint, and its state."""
    return life.examine(doc, now), doc.hint, doc.state


def _freed(doc: Document, how: str, over: int, limits: Limits) -> tuple[int, float]:
    """Free bytes of a session in one way; return its bytes, and when its oldest complete stream ended."""
    left = doc.size - over
    while doc.size > left:
        if how == "own":
            is_freed = streams.drop_finished(doc)
        elif how == "oldest":
            oldest = next((one for one in doc.finished if not doc.exchanges[one].reader), "")
            is_freed = streams.forget_finished(doc, oldest)
        else:
            is_freed = streams.cut_largest(doc, doc.size - left, limits)
        if not is_freed or how == "oldest":
            break
    return int(doc.size), min(doc.finished.values(), default=0.0)


class SessionMethods(RedisDocuments, StateMethods):
    """open, sweep, subscriptions, and closings whose listeners must be called."""

    over: int
    frees: frozenset[Callable[..., Any]] = RedisDocuments.frees | {_examined, _freed}
    _doubtful: dict[str, None]
    """Sessions of which the shared slot may not know the last change."""
    _compared: str = ""
    """The session that was compared last, in the order of their keys; empty: the first one is next."""
    _compared_at: float = 0.0
    _unreported: dict[str, tuple[int, float]]
    """Sessions whose logs have other sizes than the shared slot knows: their bytes, and when their oldest complete
    stream ended."""

    @override
    def forget_all(self) -> None:
        super().forget_all()
        self._doubtful, self._unreported = {}, {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Take a place in the index, evict a session if the contract demands it, then begin the session."""
        evicted: list[Closed] = []
        for _ in range(_EVICTIONS):
            # One eviction makes room for one session, also if there are more than the limit already.
            most = self._limits.sessions if evicted else self._limits.sessions_per_principal
            verdict = await self._reserve(record, most, evict=evict)
            if verdict[0] == b"ok":
                numbers, fields = opened(record, self.now(), self._mark)
                if registered := len(verdict) > 1:
                    # The replica that closes the session removes it from the lists of all its writers. So the opener is
                    # a writer from the beginning. Not 0: if it is declared dead, and is removed there, its first commit
                    # finds that this number is missing.
                    fields[f"o:{self._writer()}"] = b"1"
                if await self.create(record, numbers, fields):
                    self.opened_here(record.key, numbers, fields, registered=registered)
                return evicted
            victim = await self._evict(record.principal) if verdict[0] == b"evict" else None
            if victim is None:
                break
            evicted.append(victim)
        return Refusal.FULL

    async def _reserve(self, record: SessionRecord, own_most: int, *, evict: bool) -> Any:
        first_look = milliseconds(min(record.idle, record.lifetime))
        life = milliseconds(max(record.lifetime, record.idle + record.grace))
        place = (record.key, hashed(record.principal), first_look)
        return await self.index("reserve", *place, self._limits.sessions, own_most, int(evict), life)

    async def _evict(self, principal: str) -> Closed | None:
        """Close the principal's longest idle session; None if each of them has work or a reader."""
        oldest = await self._longest_idle(principal)
        if oldest is None:
            return None
        touched, key = oldest

        def is_idle(doc: Document) -> SessionInput | None:
            busy = doc.running or doc.readers or milliseconds(doc.touched) > touched
            return None if busy else SessionInput.EVICTED

        return await self.end(key, is_idle) or await self._evict(principal)

    async def _longest_idle(self, principal: str) -> tuple[int, str] | None:
        """Return a principal's longest idle session, and when its client was last seen.

        The index knows the earliest time at which each was last seen. It is corrected until
        the first ones are exact: the first idle one among them is then the oldest of all.
        """
        own, start = hashed(principal), 0
        best: tuple[int, str] | None = None
        for _ in range(_LOOKS):
            _, _, found = await self.index("own", own, start, start + _BATCH - 1)
            floors = {key.decode(): float(score) for key, score in zip(found[::2], found[1::2], strict=True)}
            seen = await asyncio.gather(*(self._peek(key, principal) for key in floors))
            living = [peek for peek in seen if peek is not None]
            best = min(((touched, key) for key, touched, works in living if not works), default=None)
            moved = [(key, touched) for key, touched, _ in living if touched > floors[key]]
            if moved or len(living) < len(floors):
                await self.index("seen", own, *(word for pair in moved for word in pair))
                start = 0
            elif best is not None or len(floors) < _BATCH:
                break
            else:
                start += _BATCH
        return best

    async def _peek(self, key: str, principal: str) -> tuple[str, int, bool] | None:
        doc = await self.load(key)
        if doc is None:
            await self._remove(key, principal)
            return None
        return key, milliseconds(doc.touched), bool(doc.running or doc.readers)

    async def look(self, key: str) -> Status | None:
        """Return an open session. Its state counts among its kept bytes."""
        try:
            stored, state = await asyncio.gather(self.stored(key), self.load_state(key, [], []))
            if stored is None or stored.fields is None or state is None:
                return None
            doc, kept = SharedDocument(stored.numbers, stored.fields), StateHead.decoded(state.head).kept
        except Unreadable as error:
            await self._drop(key, error)
            return None
        return doc.status(self.now(), log_bytes=doc.size, kept_bytes=kept)

    async def sessions_after(self, after: str, *, limit: int) -> Listing:
        """Return the sessions that follow in the order of their keys. A session that cannot be read is left out."""
        keys = [key.decode() for key in (await self.index("listed", after, limit))[2]]
        looks, _ = await self.each(self.look(key) for key in keys)
        return Listing(
            [status for status in looks if status is not None], keys[-1] if len(keys) == limit else ""
        )

    async def totals(self) -> Totals:
        """Return the totals of all sessions in the shared slot."""
        _, _, sessions, detached, log_bytes, kept = await self.index("totals")
        return Totals(sessions, detached, int(log_bytes), int(kept))

    async def due(self) -> list[str]:
        """Return none: `sweep` takes them in batches, with a mark."""
        return []

    async def oldest_finished(self) -> tuple[str, str] | None:
        """Return none: `_make_room` asks the shared slot."""
        return None

    async def sweep(self) -> list[Closed]:
        """Close the sessions that are due. For the others, set the time of the next check."""
        await self.index("sweep_tasks")
        await self._compare_some()
        closed: list[Closed] = []
        while True:
            mark = f"0.{int(self._random.uniform(1, 999)):03d}"
            _, _, marked, keys = await self.index("due", _BATCH, mark)
            looks, whole = await self.each(self._look(key.decode(), marked) for key in keys)
            closed += [look for look in looks if look is not None]
            # A session that could not be examined is due again in two seconds: this sweep must not wait for it.
            if len(keys) < _BATCH or not whole:
                return closed

    async def _look(self, key: str, marked: bytes) -> Closed | None:
        found = await self.apply(key, None, _examined, self.now())
        if found is None:
            await self._remove(key, "")
            return None
        reason, hint, state = found
        closed = None if reason is None else await self.end(key, lambda doc: doc.ends_now(self.now()))
        if closed is None:
            away = flag(state is SessionState.DETACHED)
            await self.index("rehint", key, marked, milliseconds(hint), away)
        return closed

    @override
    def doubt(self, key: str) -> None:
        if len(self._doubtful) < _DOUBTS:
            self._doubtful[key] = None

    async def _compare_some(self) -> None:
        """Compare the doubtful sessions with the shared slot, and some others."""
        keys = list(islice(self._doubtful, _BATCH))
        for key in keys:
            del self._doubtful[key]
        if self.now() - self._compared_at >= _COMPARE_SECONDS:
            self._compared_at = self.now()
            following = [key.decode() for key in (await self.index("listed", self._compared, _COMPARED))[2]]
            self._compared = following[-1] if len(following) == _COMPARED else ""
            keys += following
        await self.each(self._compare(key) for key in dict.fromkeys(keys))

    async def _compare(self, key: str) -> None:
        """Correct what the shared slot knows of a session.

        This never raises its hint: only the sweep does, which has examined it.
        """
        try:
            doc = await self.load(key)
            if doc is None:
                await self.index("hint", key, milliseconds(self.now() + _MADE_SECONDS))
                return
            owners = {one.owner for one in doc.exchanges.values() if one.running}
            owners |= {one.reader for one in doc.exchanges.values()} | {
                one.owner for one in doc.held.values()
            }
            owners.discard("")
            oldest = milliseconds(min(doc.finished.values(), default=0.0))
            away = flag(doc.state is SessionState.DETACHED)
            facts = (milliseconds(doc.hint), away, doc.size, oldest, self._report_step, len(owners))
            await self.index("compare", key, *facts, *owners, *map(hashed, doc.subscriptions))
        except StoreError:
            self.doubt(key)
            raise

    async def remove(self, key: str, erasure: Erasure) -> bool:
        """End a session in its own slot, then in the shared one."""
        if not await super().remove(key, erasure):
            return False
        owners = {writer.partition("/")[0] for writer in erasure.writers}
        subscriptions = [hashed(uri) for uri in erasure.subscriptions]
        principal, unreported = hashed(erasure.record.principal), milliseconds(UNREPORTED_SECONDS)
        await self.index("forget", key, principal, unreported, len(owners), *owners, *subscriptions)
        if erasure.size:
            with suppress(StoreError):
                await self._linger(key, erasure.size)
        return True

    async def poisoned(self, key: str, error: Exception) -> None:  # noqa: ARG002
        await self.send("drop", key, ())
        await self.index("forget", key, "", 0, 1, self.me)

    async def _linger(self, key: str, size: int) -> None:
        """Count the streams that a closed session leaves for its readers.

        If all of them are too many, the oldest are deleted.
        """
        most = self._limits.streams_bytes // LINGER_SHARE
        over = (await self.index("linger", key, size, milliseconds(LINGER_SECONDS), most))[2]
        await self.each(self.send("drop", name.decode(), ("left",)) for name in over)

    async def _remove(self, key: str, principal: str) -> None:
        """Remove a closed session from the shared slot.

        If the replica that closed it could not do this, its listeners may not have been called.
        """
        unreported = await self.send("closing", key, ()) is not None
        waits = milliseconds(UNREPORTED_SECONDS) if unreported else 0
        await self.index("forget", key, hashed(principal), waits, 1, self.me)

    async def sessions(self, principal: str | None = None) -> list[str]:
        own = () if principal is None else (hashed(principal),)
        return [key.decode() for key in (await self.index("sessions", *own))[2]]

    async def subscribe(self, key: str, uri: str) -> bool:
        """Remember a subscription, in the session and under the resource. Its bytes are allowed before."""
        async with self._one_of(key):
            try:
                return await self._subscribe(key, uri)
            except BaseException:
                self._in_background(self._settle(key, uri))
                raise

    async def _subscribe(self, key: str, uri: str) -> bool:
        doc = await self.load(key)
        if doc is None or (uri not in doc.subscriptions and not await self._hold(key, uri, holds=True)):
            return False
        done = await super().subscribe(key, uri)
        if done:
            # Also if it was known: the client repeats a request of which the last step has failed.
            await self.index("subscribed", hashed(uri), key, milliseconds(86_400))
        else:
            await self._hold(key, uri, holds=False)
        return done

    async def _settle(self, key: str, uri: str) -> None:
        """Hold the bytes of a subscription if there is one: a command was cut short."""
        with suppress(StoreError):
            async with self._one_of(key):
                known = await self.apply(key, frozenset[str](), life.subscriptions)
                await self._hold(key, uri, holds=uri in known)

    def _one_of(self, key: str) -> asyncio.Lock:
        """Return the lock of a session: this process changes one of its subscriptions at a time."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def unsubscribe(self, key: str, uri: str) -> None:
        """Forget a subscription, and what it has kept: also if only the bytes are left of it."""
        async with self._one_of(key):
            await super().unsubscribe(key, uri)
            await self._hold(key, uri, holds=False)
        await self.index("take_out", "SREM", f":sub:{hashed(uri)}", key)

    async def subscribers(self, uri: str) -> list[str]:
        return [key.decode() for key in (await self.index("subscribers", hashed(uri)))[2]]

    # What other slots have to know

    @override
    def at(self) -> At:
        """Return the circumstances of a command.

        The shared slot knows the bytes of all sessions, so room is made after it (`_make_room`).
        """
        return At(self.now(), self.me, self._limits, self._limits.store_bytes)

    @override
    async def applied(self, key: str, doc: SharedDocument, known: Sequence[float], grown: int) -> None:
        """Tell the shared slot what this commit has changed: when the session is due, if it is detached, its size.

        A report of the size is made when it passes a multiple of a step, in either direction, by the replica that
        writes.
        """
        step = self._report_step
        if doc.size // step != (doc.size - grown) // step:
            self._unreported[key] = doc.size, min(dict.values(doc.finished), default=0.0)
            self.over = 1
        if doc.hint < known[_HINT]:
            await self.index("hint", key, milliseconds(doc.hint))
        if doc.state is not STATES[int(known[_STATE])]:
            await self.index("away", key, flag(doc.state is SessionState.DETACHED))

    async def _make_room(self, key: str) -> None:
        """Report the bytes of sessions whose logs have changed; if those of all are too many, make room.

        Streams of the principal with the most bytes are removed, so that no principal can fill the store for the
        others: its oldest finished streams first, then the oldest events of its largest log. If the writing session
        belongs to this principal, the finished streams of that session are removed first, and its own log is cut.
        """
        self.over = -self._limits.streams_bytes
        while self._unreported:
            name, (size, oldest) = self._unreported.popitem()
            room = await self._sized(key, name, size, oldest)
            for how in ("own", "oldest", "trim", "last"):
                while room.over > 0 and (whose := room.victim(how, key)):
                    freed = await self.apply(whose, None, _freed, how, room.over, self._limits)
                    self._unreported.pop(whose, None)
                    if freed is None:
                        await self._remove(whose, "")
                        room = await self._sized(key, key, size, oldest)
                        continue
                    before, room = room.over, await self._sized(key, whose, *freed)
                    if room.over >= before:
                        break
        self.over = -self._limits.streams_bytes

    async def _sized(self, writer: str, key: str, size: int, oldest: float) -> Room:
        facts = (key, size, milliseconds(oldest), writer)
        _, _, total, is_own, old, large = await self.index("size", *facts)
        return Room(int(total) - self._limits.streams_bytes, bool(is_own), old.decode(), large.decode())

    # Listeners

    async def closing_reported(self, closed: Closed) -> None:
        await self.send("closing", closed.record.key, ("forget",))
        await self.index("take_out", "ZREM", ":told", closed.record.key)

    async def unreported_closings(self) -> list[Closed]:
        _, _, keys = await self.index("outbox", _BATCH, milliseconds(UNREPORTED_SECONDS))
        found, _ = await self.each(self._unreported_closing(key.decode()) for key in keys)
        return [closed for closed in found if closed is not None]

    async def _unreported_closing(self, key: str) -> Closed | None:
        try:
            stored = await self.send("closing", key, ())
            if stored is not None:
                return self.closing_of(stored)
        except Unreadable as error:
            self._observer.note("store.poisoned", session=key[:8], error=error)
            await self.send("drop", key, ())
        await self.index("take_out", "ZREM", ":told", key)
        return None
