"""Replicas: leases by the store's clock, what the dead leave behind, and what the living tell each other."""

from holdfast.core.stream import Position
from holdfast.errors import StoreUnavailable
from holdfast.stores.base import Adopted, Announced, Claim, Forwarded, Lease, Orphan, WakeUp
from holdfast.stores.redis.core import FORMAT, Core, untyped
from holdfast.stores.redis.exchanges import before

_INBOX = 10_000
"""Requests that may wait for one replica."""
_STRAY_SECONDS = 10.0
"""An exchange of our own that we do not know is an orphan after this: a failover brought back one that had ended."""


class ReplicaMethods(Core):
    """renew, release, replicas, orphans, reap, adopt, forward, inbox, took, announce, announced, secret."""

    async def renew(self, seconds: float) -> Lease:
        """Take the lease or make it longer; one that has run out comes back as a new incarnation.

        Raises:
            StoreUnavailable: also where a release of a later format serves this namespace.
        """
        reply = await self.index("lease", self.replica, self.incarnation, round(seconds * 1000))
        if reply[0] == b"later":
            raise StoreUnavailable(
                f"a later Holdfast serves this namespace (format {reply[2]}, this one knows {FORMAT}): "
                "upgrade this one, or give it another namespace"
            )
        incarnation = int(reply[2])
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self._owner = f"{self.replica}.{incarnation}"
        return Lease(self.replica, incarnation, seconds)

    async def release(self) -> None:
        """Give the lease back."""
        await self.index("release", self.replica, self._owner)

    async def replicas(self) -> list[str]:
        """Return the names of the replicas whose lease runs."""
        return [owner.decode().rpartition(".")[0] for owner in (await self.index("replicas"))[2]]

    async def orphans(self) -> list[Orphan]:
        """Return what the dead left running; their readers are gone with them."""
        _, _, dead, own = await self.index("dead")
        is_dead = any(owner.decode() == self._owner for owner, _ in dead)
        # All at once: one after another, each would wait for a disk of its own where Redis is durable.
        looks = [self._left(owner.decode(), key.decode(), 0) for owner, keys in dead for key in keys]
        looks += [
            self._left(self._owner, key.decode(), round(_STRAY_SECONDS * 1000))
            for key in ([] if is_dead else own)
        ]
        found, _ = await self.each(looks)
        return [orphan for some in found for orphan in some]

    async def _left(self, owner: str, key: str, min_age: int) -> list[Orphan]:
        seat = self._seats.get(key) if owner == self._owner else None
        known = list(seat.running) if seat is not None else []
        reply = await self.session("unseat", key, owner, min_age, *known)
        if reply[0] != b"ok" or (owner != self._owner and not reply[2]):
            await self.index("unseated", owner, key)
            return []
        return [Orphan(key, stream.decode(), untyped(name), owner, runs) for stream, name, runs in reply[2]]

    async def reap(self, orphan: Orphan, terminal: bytes, *, tag: int) -> bool:
        """End an orphan for its owner. Of many who try, one does."""
        end = (terminal, str(tag), str(before(tag)))
        reply = await self.session("reap", orphan.session, orphan.stream, orphan.owner, *end, *self._budget)
        if reply[0] != b"ok":
            return False
        self._on_wake(WakeUp.STREAM, orphan.session, orphan.stream)
        return True

    async def adopt(self, orphan: Orphan, *, tag: int) -> Adopted | None:
        """Take an orphan over to run it again. Of many who try, one does."""
        key, stream = orphan.session, orphan.stream
        reply = await self.seated("adopt", key, stream, orphan.owner, orphan.runs, str(tag))
        if reply[0] != b"ok":
            return None
        record = await self.readable(key, *reply[8:11])
        if record is None:
            return None
        fence, seq, last, digest, control, payload = reply[2:8]
        claim = Claim(orphan.id, stream, digest, bool(control), payload)
        position = Position(seq, int(last))
        self.seat(key).running[stream] = claim
        self._recent.forget(key, stream)
        self._recent.begin(key, stream, position)
        return Adopted(record, claim, fence, position)

    # Between replicas

    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
        """Put a request into a living replica's inbox and ring."""
        reply = await self.index("forward", replica, name, payload, round(seconds * 1000), _INBOX)
        return bool(reply[0] == b"ok")

    async def inbox(self) -> list[Forwarded]:
        """Return what was put to this replica and not yet taken."""
        flat = (await self.index("inbox", self.replica))[2]
        return [Forwarded(flat[index].decode(), flat[index + 1]) for index in range(0, len(flat), 2)]

    async def remove_forwarded(self, name: str) -> None:
        """Take a request out of the inbox."""
        await self.index("took", self.replica, name)

    async def announce(self, name: str, event: bytes) -> None:
        """Tell all replicas."""
        await self.index("announce", name, event)

    async def announced(self, after: str) -> Announced:
        """Return what was announced after a cursor."""
        _, _, cursor, events = await self.index("news", after)
        return Announced(cursor.decode(), events)

    async def secret(self, name: str, candidate: bytes, *, seconds: float) -> bytes:
        """Return the secret of this name: the first candidate offered."""
        value: bytes = (await self.index("secret", name, candidate, int(seconds * 1000)))[2]
        return value
