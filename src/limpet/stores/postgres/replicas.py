"""Leases, and messages between replicas.

A lease is kept as in the file of SQLite (`sqlite/replicas.py`). `renew` and the declaration of a death change the same
row, so one of them decides.
"""

from limpet.core.records import WakeUp
from limpet.stores.base import INBOX, INBOX_BYTES, Announced, Forwarded
from limpet.stores.base.replicas import lease_ended
from limpet.stores.postgres.bell import ALL, Bell

_NEWS = 100


class PostgresReplicas(Bell):
    """renew, release, replicas, forward, inbox, announce, secret, notices."""

    async def renew(self, seconds: float) -> int:
        [(incarnation, found, now)] = await self._run("renew", self.replica, self.me, seconds, self._told)
        self._clock.measure(now)
        return self._renewed(int(incarnation), found)

    async def release(self) -> None:
        await self._run("release", self.me, self._told)

    async def prove(self) -> None:
        """Check the lease, and write a row, as new work does.

        Raises:
            StoreUnavailable: also if the lease of this replica has ended.
        """
        if not await self._one("prove", self._lives, self._told):
            raise lease_ended()

    async def replicas(self) -> dict[str, float]:
        return {replica: left for replica, left in await self._run("replicas", self._told)}  # noqa: C416 - rows are no pairs

    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
        most = (INBOX, INBOX_BYTES)
        done = bool(await self._one("forward", replica, name, payload, seconds, *most, self._told))
        if done and replica == self.replica:
            self.wake(WakeUp.FORWARD, "", "")
        elif done:
            self._ring("", [(WakeUp.FORWARD, "", replica)])
        return done

    async def inbox(self) -> list[Forwarded]:
        return [
            Forwarded(name, payload) for name, payload in await self._run("inbox", self.replica, self._told)
        ]

    async def remove_forwarded(self, name: str, *, replica: str = "") -> bool:
        return bool(await self._one("take", replica or self.replica, name, self._random.token(6)))

    async def announce(self, name: str, event: bytes) -> None:
        await self._run("announce", name, event, self._told)
        self.wake(WakeUp.NEWS, "", "")
        self._ring("", [(WakeUp.NEWS, "", ALL)])

    async def announced(self, after: str) -> Announced:
        if not after:
            return Announced(str(await self._one("newest")), [])
        rows = await self._run("news", int(after), _NEWS)
        first = rows[0][0] if rows else int(await self._one("newest")) + 1
        cursor = rows[-1][0] if rows else first - 1
        return Announced(str(cursor), [event for _, event in rows], first > int(after) + 1)

    async def secret(self, name: str, candidate: bytes, *, seconds: float) -> bytes:
        value: bytes = await self._one("secret", name, candidate, seconds, self._told)
        return value

    async def post_notice(self, notice: bytes, *, seconds: float) -> list[bytes]:
        if notice:
            await self._run("post_notice", self.replica, notice, seconds, self._told)
        return await self._column("notices", self.replica, self._told)
