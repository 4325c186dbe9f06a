"""Replicas: leases by the store's clock, the work of dead replicas, and messages between replicas.

**Finding orphans.** `orphans` takes the dead replicas, and some of the sessions where they had work, from the shared
slot. It asks all these sessions at once (`left_by`) for the work of the dead replica, and takes others until some is
found. A session where nothing is left is removed from the list; a session on a shard that cannot be reached stays, and
is asked again next time. Our own sessions are examined in the same way: an exchange that is ours in the store, and
unknown to this process, had ended before a failover brought it back.

**Ending them.** `reap` decides in the session's slot, by owner: of several replicas one succeeds, and the exchange gets
a new fence, so the dead owner cannot write any more. It recognizes its own work when it is sent again by the tag of its
terminal message.

"""

from typing import Final

from limpet.errors import StoreUnavailable
from limpet.stores.base import INBOX, INBOX_BYTES, Announced, Forwarded, Orphan
from limpet.stores.base.replicas import lease_ended
from limpet.stores.redis.core import Core, flag, milliseconds

_DEAD_AT_ONCE: Final = 100
"""Sessions of each dead replica, and own ones, that are asked at once."""
_DEAD_ROUNDS: Final = 100
"""How often others are asked at once if a dead replica has nothing left in any of them."""


class ReplicaMethods(Core):
    """renew, release, replicas, orphans, reap, forward, inbox, announce, announced, secret, post_notice."""

    async def renew(self, seconds: float) -> int:
        """Take the lease or make it longer; after this incarnation was declared dead, a new one begins.

        Raises:
            StoreUnavailable: also if a release of a later format serves this namespace.
        """
        reply = await self.index("lease", self.replica, self.incarnation, milliseconds(seconds))
        if reply[0] == b"later":
            raise StoreUnavailable(
                f"a later Limpet serves this namespace (format {reply[2]}, this one knows {self.format}): "
                "upgrade this one, or give it another namespace"
            )
        self._clock.measure(reply[4] / 1000)
        return self._renewed(*map(int, reply[2:4]))

    async def release(self) -> None:
        await self.index("release", self.replica, self.me)

    async def prove(self) -> None:
        """Check the lease, and write a key of the shared indexes, which every new session needs.

        Raises:
            StoreUnavailable: also if the lease of this replica has ended.
        """
        if (await self.index("prove"))[0] == b"dead":
            raise lease_ended()

    async def replicas(self) -> dict[str, float]:
        _, _, now, found = await self.index("replicas")
        ends = zip(found[::2], found[1::2], strict=True)
        return {owner.decode().rpartition(".")[0]: (float(end) - now) / 1000 for owner, end in ends}

    async def register(self, key: str) -> None:
        """Note that this replica may have work in a session, before it has.

        Raises:
            StoreUnavailable: this incarnation was declared dead; no other replica would find work that it begins now.
        """
        if (await self.index("register", self.me, key))[0] == b"dead":
            raise lease_ended()

    async def orphans(self) -> list[Orphan]:
        found: list[Orphan] = []
        for _ in range(_DEAD_ROUNDS):
            _, _, dead, own = await self.index("dead", _DEAD_AT_ONCE)
            is_dead = any(owner.decode() == self.me for owner, _ in dead)
            # All at once: one after another, each would wait for the disk if Redis writes to it before it replies.
            looks = [self._left(owner.decode(), key.decode()) for owner, keys in dead for key in keys]
            looks += [self._left(self.me, key.decode()) for key in ([] if is_dead else own)]
            left, is_whole = await self.each(looks)
            found = [orphan for some in left for orphan in some]
            if found or not is_whole or not any(len(keys) == _DEAD_AT_ONCE for _, keys in dead):
                break
        return found

    async def _left(self, owner: str, key: str) -> list[Orphan]:
        found = await (self.strays(key) if owner == self.me else self.left_by(owner, key))
        if found is None:
            await self.index("take_out", "SREM", f":own:{owner}", key)
        return found or []

    # Between replicas

    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
        most = (INBOX, INBOX_BYTES)
        reply = await self.index("forward", replica, name, payload, milliseconds(seconds), *most)
        return bool(reply[0] == b"ok")

    async def inbox(self) -> list[Forwarded]:
        flat = (await self.index("inbox", self.replica))[2]
        return [Forwarded(flat[index].decode(), flat[index + 1]) for index in range(0, len(flat), 2)]

    async def remove_forwarded(self, name: str, *, replica: str = "") -> bool:
        return bool((await self.index("took", replica or self.replica, name, flag(replica)))[2])

    async def announce(self, name: str, event: bytes) -> None:
        await self.index("announce", name, event)

    async def announced(self, after: str) -> Announced:
        _, _, cursor, events, *missed = await self.index("news", after)
        return Announced(cursor.decode(), events, bool(missed and missed[0]))

    async def secret(self, name: str, candidate: bytes, *, seconds: float) -> bytes:
        value: bytes = (await self.index("secret", name, candidate, milliseconds(seconds)))[2]
        return value

    async def post_notice(self, notice: bytes, *, seconds: float) -> list[bytes]:
        found: list[bytes] = (await self.index("notices", self.replica, notice, milliseconds(seconds)))[2]
        return found
