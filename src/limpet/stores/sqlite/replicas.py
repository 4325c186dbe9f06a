"""Operations of replicas: leases, the work of dead replicas, requests that replicas forward, shared secrets.

A lease has three states: it runs (`until` is in the future), it has ended (`until` is past), or its owner was
declared dead (`until` is 0). `renew` and `orphans` are transactions of one file, so one of them decides.
"""

from typing import Final

from limpet.stores.base import INBOX, INBOX_BYTES, Forwarded, WakeUp
from limpet.stores.base.replicas import lease_ended
from limpet.stores.sqlite.transaction import Transaction

_RENEW: Final = (
    "UPDATE lease SET since = iif(abs(? - renewed) > ? / 2, ?, since), renewed = ?, seconds = ?, until = ?"
    " WHERE owner = ? AND until > 0 RETURNING 1"
)
_MAY_REAP: Final = (
    "SELECT seconds FROM lease"
    " WHERE owner = ? AND until > 0 AND ? - since >= seconds AND abs(? - renewed) <= seconds / 2"
)
"""The length of a replica's lease, if it has reached the store for one whole lease: it has renewed all the time, by the
store's clock."""
_DECLARE_DEAD: Final = "UPDATE lease SET until = 0 WHERE until <= ? OR renewed - ? > ? / 2"
"""A lease that was renewed in the future: the clock was set back, and its owner has not renewed since then."""


def renew(tx: Transaction, seconds: float) -> tuple[int, int]:
    """Take the lease or make it longer.

    Return the incarnation, and the format of the file, which a later release may have upgraded.
    """
    owner, until = tx.identity.owner, tx.now + seconds
    found: int = tx.one("PRAGMA user_version")
    if tx.one(_RENEW, tx.now, seconds, tx.now, tx.now, seconds, until, owner):
        return int(owner.rpartition(".")[2]), found
    incarnation: int = tx.one("UPDATE total SET incarnations = incarnations + 1 RETURNING incarnations")
    replica = tx.identity.replica
    # A replica has one lease. An older lease of this name that has not ended yet belongs to another process with the
    # same name, or was written before the clock was set back.
    tx.execute("UPDATE lease SET until = 0 WHERE replica = ?", (replica,))
    tx.execute(
        "INSERT INTO lease (owner, replica, until, since, renewed, seconds) VALUES (?, ?, ?, ?, ?, ?)",
        (f"{replica}.{incarnation}", replica, until, tx.now, tx.now, seconds),
    )
    return incarnation, found


def prove(tx: Transaction) -> None:
    """Check the lease; then write a row and delete it, because SQLite does not write an update that changes nothing.

    Raises:
        StoreUnavailable: the lease of this replica has ended.
    """
    owner = tx.identity.owner
    if tx.identity.incarnation and not tx.one(
        "SELECT 1 FROM lease WHERE owner = ? AND until > ?", owner, tx.now
    ):
        raise lease_ended()
    tx.execute("INSERT INTO notice (replica, until, value) VALUES ('', 0, x'')")
    tx.execute("DELETE FROM notice WHERE replica = ''")


def release(tx: Transaction) -> None:
    """End the lease; other replicas reap the remaining work."""
    tx.execute("UPDATE lease SET until = 0 WHERE owner = ?", (tx.identity.owner,))
    forget_lease(tx, tx.identity.owner)


def forget_lease(tx: Transaction, owner: str) -> None:
    """Forget the lease of a dead owner, if it owns nothing any more."""
    if not owned(tx, owner):
        tx.execute("DELETE FROM lease WHERE owner = ? AND until = 0", (owner,))


def living(tx: Transaction) -> dict[str, float]:
    """Return the replicas whose lease runs, and for how long."""
    found = tx.execute("SELECT replica, until FROM lease WHERE until > ? ORDER BY owner", (tx.now,))
    return {replica: until - tx.now for replica, until in found}


def declare_dead(tx: Transaction) -> list[str]:
    """Declare replicas dead whose lease has ended, if this one may.

    Return all dead owners that may still own something.
    """
    lease = tx.one(_MAY_REAP, tx.identity.owner, tx.now, tx.now)
    if lease is not None:
        tx.execute(_DECLARE_DEAD, (tx.now, tx.now, lease))
    return [owner for (owner,) in tx.execute("SELECT owner FROM lease WHERE until = 0")]


def owned(tx: Transaction, owner: str) -> list[str]:
    """Return the sessions that an owner has written, and where it may have work."""
    # A slash, and the character after it: the names of all its processes.
    names = (f"{owner}/", f"{owner}0")
    found = tx.execute(
        "SELECT key FROM session WHERE writer > ? AND writer < ?"
        " UNION SELECT key FROM field JOIN session USING (sid) WHERE name > 'o:' || ? AND name < 'o:' || ?",
        (*names, *names),
    )
    return [key for (key,) in found]


def forward(tx: Transaction, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
    """Put a request into a living replica's inbox, and send FORWARD."""
    if tx.one("SELECT 1 FROM lease WHERE replica = ? AND until > ?", replica, tx.now) is None:
        return False
    if tx.one("SELECT 1 FROM inbox WHERE replica = ? AND name = ?", replica, name) is None:
        waiting = "SELECT count(*), coalesce(sum(length(payload)), 0) FROM inbox WHERE replica = ?"
        [(count, size)] = tx.execute(waiting, (replica,))
        if count >= INBOX or (count and size + len(payload) > INBOX_BYTES):
            return False
        tx.execute(
            "INSERT INTO inbox (replica, name, expires, payload) VALUES (?, ?, ?, ?)",
            (replica, name, tx.now + seconds, payload),
        )
    if replica == tx.identity.replica:
        tx.wake(WakeUp.FORWARD, "", "")
    else:
        tx.wake_elsewhere(WakeUp.FORWARD, "", "", replica)
    return True


def inbox(tx: Transaction) -> list[Forwarded]:
    """Return the requests in this replica's inbox."""
    found = tx.execute(
        "SELECT name, payload FROM inbox WHERE replica = ? AND expires > ? ORDER BY n",
        (tx.identity.replica, tx.now),
    )
    return [Forwarded(*row) for row in found]


def remove_forwarded(tx: Transaction, name: str, *, replica: str = "") -> bool:
    """Remove a request from an inbox, by default the own one. True if it was there."""
    whose = replica or tx.identity.replica
    return tx.one("DELETE FROM inbox WHERE replica = ? AND name = ? RETURNING 1", whose, name) is not None


def secret(tx: Transaction, name: str, candidate: bytes, seconds: float) -> bytes:
    """Return the secret of this name: the first candidate offered."""
    tx.execute(
        "INSERT INTO secret (name, value, until) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET until = excluded.until",
        (name, candidate, tx.now + seconds),
    )
    value: bytes = tx.one("SELECT value FROM secret WHERE name = ?", name)
    return value


def post_notice(tx: Transaction, notice: bytes, seconds: float) -> list[bytes]:
    """Replace the notice of this replica; return those of the others."""
    tx.execute(
        "INSERT INTO notice (replica, until, value) VALUES (?, ?, ?)"
        " ON CONFLICT (replica) DO UPDATE SET until = excluded.until, value = excluded.value",
        (tx.identity.replica, tx.now + seconds, notice),
    )
    return notices(tx)


def notices(tx: Transaction) -> list[bytes]:
    """Return the notices of the other replicas."""
    found = tx.execute(
        "SELECT value FROM notice WHERE replica <> ? AND until > ?", (tx.identity.replica, tx.now)
    )
    return [value for (value,) in found]


def sweep(tx: Transaction) -> None:
    """Drop requests that were not taken in time, notices whose time is over, and secrets that are no longer used."""
    tx.execute("DELETE FROM notice WHERE until <= ?", (tx.now,))
    tx.execute("DELETE FROM inbox WHERE expires <= ?", (tx.now,))
    tx.execute("DELETE FROM secret WHERE until <= ?", (tx.now,))
