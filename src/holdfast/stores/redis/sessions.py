"""Sessions: opened with a place in the shared slot, found, evicted, swept, closed once (lua/sessions.lua, lua/index.lua).

The shared slot knows the sessions and the earliest time to examine each. A session's own slot decides whether it is
due, or idle enough to be evicted, in the step that closes it. So eviction asks for candidates, examines each,
corrects the shared slot, and tries to close the oldest; if its client came back meanwhile, it takes the next.
"""

import asyncio
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import msgspec

from holdfast.core.lifecycle import SessionInput, SessionState
from holdfast.errors import StoreError
from holdfast.stores.base import (
    LINGER_SECONDS,
    LINGER_SHARE,
    UNREPORTED_SECONDS,
    Closed,
    Ending,
    Found,
    Listing,
    Refusal,
    SessionRecord,
    Status,
    Totals,
    WakeUp,
)
from holdfast.stores.redis.core import Core, hashed, milliseconds, record_of
from holdfast.stores.redis.link import Argument
from holdfast.stores.redis.refusals import Poisoned

_BATCH: Final = 100
_LOOKS: Final = 64
_EVICTIONS: Final = 5
"""How often a session is evicted for a new one before the store is full: other new sessions may take the place."""


def closed_of(reply: list[Any]) -> Closed:
    """Return a closing from a script's reply."""
    reason, record, event = reply[2:5]
    return Closed(record_of(record), SessionInput(reason.decode()), event.decode())


class SessionMethods(Core):
    """open, find, change, close, sweep, subscriptions, and closings whose listeners must be called."""

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Take a place in the index, evict a session if the contract demands it, then begin the session."""
        evicted: list[Closed] = []
        for _ in range(_EVICTIONS):
            # One eviction makes room for one session, also if there are more than the limit already.
            most = self._limits.sessions if evicted else self._limits.sessions_per_principal
            verdict = await self._reserve(record, most, evict=evict)
            if verdict == b"ok":
                await self.run("open", record.key, *_facts(record))
                return evicted
            victim = await self._evict(record.principal) if verdict == b"evict" else None
            if victim is None:
                break
            evicted.append(victim)
        return Refusal.FULL

    async def _reserve(self, record: SessionRecord, own_most: int, *, evict: bool) -> Any:
        first_look = milliseconds(min(record.idle, record.lifetime))
        life = milliseconds(max(record.lifetime, record.idle + record.grace))
        place = (record.key, hashed(record.principal), first_look)
        reply = await self.index("reserve", *place, self._limits.sessions, own_most, int(evict), life)
        return reply[0]

    async def _evict(self, principal: str) -> Closed | None:
        """Close the principal's longest idle session; None if each of them has work or a reader."""
        oldest = await self._longest_idle(principal)
        if oldest is None:
            return None
        touched, key = oldest
        reply = await self.run("evict", key, touched)
        return await self._ended(key, reply) or await self._evict(principal)

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
        reply = await self.run("peek", key)
        if reply[0] != b"ok":
            await self._gone(key, principal)
            return None
        return key, reply[2], bool(reply[3])

    async def find(self, key: str, principal: str) -> Found | None:
        """Return the session. Counts as a sign of the client."""
        reply = await self.session("find", key, principal)
        if reply[0] != b"ok":
            return None
        record = await self.readable(key, reply[3])
        return None if record is None else Found(record, bool(reply[2]))

    async def look(self, key: str) -> Status | None:
        """Return an open session."""
        reply = await self.session("show", key)
        if reply[0] != b"ok":
            return None
        packed, away, closes_in, readers, running, log_bytes, kept_bytes = reply[2:9]
        record = await self.readable(key, packed)
        if record is None:
            return None
        state = SessionState.DETACHED if away else SessionState.ATTACHED
        ends = None if running else closes_in / 1000
        return Status(record, state, ends, readers, running, log_bytes, kept_bytes)

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

    async def change(self, key: str, *, level: str | None = None, initialized: bool | None = None) -> None:
        """Set the named fields."""
        fields: list[str] = []
        if level is not None:
            fields += ["2", level]
        if initialized is not None:
            fields += ["3", "1" if initialized else ""]
        await self.run("change", key, *fields)

    async def close(self, key: str, reason: SessionInput, ending: Ending | None = None) -> Closed | None:
        """Close a session once. Its exchanges in flight end too."""
        end = ("", "", "") if ending is None else (ending.before, ending.after, str(ending.tag))
        return await self._ended(key, await self.session("close", key, reason.value, *end))

    async def sweep(self) -> list[Closed]:
        """Close the sessions that are due. For the others, set the time of the next check."""
        await self.index("sweep_tasks")
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
        reply = await self.session("look", key)
        if reply[0] == b"later":
            await self.index("rehint", key, marked, reply[2], reply[3])
            return None
        if reply[0] == b"none":
            await self._gone(key, "")
            return None
        # Another replica may be closing it now, and then forgets it; if that replica dies, the session is due again
        # in two seconds.
        return await self._ended(key, reply)

    async def _ended(self, key: str, reply: list[Any]) -> Closed | None:
        if reply[0] == b"left":
            await self._gone(key, "")
        if reply[0] != b"closed":
            return None
        try:
            closed = closed_of(reply)
        except Poisoned as error:
            await self._drop(key, error)
            return None
        owners, subscriptions, lingering = reply[5:8]
        principal = hashed(closed.record.principal)
        unreported = milliseconds(UNREPORTED_SECONDS)
        await self.index("forget", key, principal, unreported, len(owners), *owners, *subscriptions)
        self.gone(key)
        self._on_wake(WakeUp.CLOSED, key, "")
        if lingering:
            with suppress(StoreError):
                await self._linger(key, lingering)
        return closed

    async def _linger(self, key: str, size: int) -> None:
        """Count the streams that a closed session leaves for its readers; if all of them are too many, the oldest are deleted."""
        most = self._limits.streams_bytes // LINGER_SHARE
        over = (await self.index("linger", key, size, milliseconds(LINGER_SECONDS), most))[2]
        await self.each(self.session("unlinger", name.decode()) for name in over)

    async def _gone(self, key: str, principal: str) -> None:
        """Remove a closed session from the shared slot."""
        await self.index("forget", key, hashed(principal), 0, 1, self._owner)

    async def sessions(self, principal: str | None = None) -> list[str]:
        """Return the keys of all open sessions, or of the open sessions of one principal."""
        own = () if principal is None else (hashed(principal),)
        return [key.decode() for key in (await self.index("sessions", *own))[2]]

    async def subscribe(self, key: str, uri: str) -> bool:
        """Remember a subscription, in the session and under the resource."""
        reply = await self.keeping(
            self.run,
            "subscribe",
            key,
            hashed(uri),
            self._limits.subscriptions,
            len(uri.encode()),
            self._limits.subscription_bytes,
            uri,
        )
        if reply[0] != b"ok":
            return False
        await self.index("subscribed", hashed(uri), key, milliseconds(86_400))
        return True

    async def unsubscribe(self, key: str, uri: str) -> None:
        """Forget a subscription."""
        await self.changing("unsubscribe", key, hashed(uri))
        await self.index("unsubscribed", hashed(uri), key)

    async def take_home(self, key: str, expected: str) -> SessionRecord | None:
        """Make this replica the home of a session if its home is `expected`."""
        reply = await self.run("take_home", key, expected, self.replica)
        return await self.readable(key, reply[2]) if reply[0] == b"ok" else None

    async def subscriptions(self, key: str) -> list[str]:
        """Return the resources that a session subscribed to."""
        reply = await self.run("subscriptions", key)
        return sorted(uri.decode() for uri in reply[2]) if reply[0] == b"ok" else []

    async def subscribers(self, uri: str) -> list[str]:
        """Return the open sessions that subscribe to a resource."""
        return [key.decode() for key in (await self.index("subscribers", hashed(uri)))[2]]

    # Listeners

    async def closing_reported(self, closed: Closed) -> None:
        """Forget a closing: its listeners were called."""
        await self.run("reported", closed.record.key)
        await self.index("acknowledge", closed.record.key)

    async def unreported_closings(self) -> list[Closed]:
        """Return closings whose listeners may not have been called."""
        _, _, keys = await self.index("outbox", _BATCH, milliseconds(UNREPORTED_SECONDS))
        found, _ = await self.each(self._unreported(key) for key in keys)
        return [closed for closed in found if closed is not None]

    async def _unreported(self, key: bytes) -> Closed | None:
        try:
            reply = await self.run("unreported", key.decode())
            if reply[0] == b"closed":
                return closed_of(reply)
        except Poisoned as error:
            self._observer.note("store.poisoned", session=key.decode()[:8], error=error)
            await self.run("drop", key.decode())
        await self.index("acknowledge", key)
        return None


def _facts(record: SessionRecord) -> tuple[Argument, ...]:
    """Return the arguments of `open`: times, the record, its home, and the fields that scripts need."""
    fields = {"pr": record.principal, "sa": record.standalone}
    if record.isolate:
        fields["iso"] = "1"
    times = (milliseconds(record.grace), milliseconds(record.idle), milliseconds(record.lifetime))
    return (*times, msgspec.json.encode(record), record.home, *chain.from_iterable(fields.items()))
