"""The answers of Redis when it does not execute a command, and our reaction: one table.

An error reply is certain: the command was not executed, so it may be sent again. A script is refused before it begins:
each declares whether it writes, so Redis knows beforehand, and in a cluster it names a second key that never exists,
so that a slot that is being moved answers TRYAGAIN instead of stopping a script in the middle (`link.Cluster`).
Only a lost connection is uncertain (`Lost`): scripts know when they are sent again.

The text of Redis goes into the log and never into an error that a client could see: it may name keys, users and hosts.
"""

from enum import Enum
from typing import Final

from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from limpet.errors import StoreError, StoreUnavailable
from limpet.stores.shared.answers import Later, Lost
from limpet.stores.shared.fields import Unreadable
from limpet.stores.shared.shelf import NoRoom


class Then(Enum):
    """The reaction to a refusal."""

    RECONNECT = "leave this connection and try again: another node does the work now"
    RETRY = "try again for a few seconds: it passes by itself"
    REFUSE = "refuse new work at once, as unavailable: it does not pass within seconds"


REFUSALS: Final[dict[str, tuple[Then, str]]] = {
    "READONLY": (
        Then.RECONNECT,
        "a failover has made this node a replica; its name now resolves to the new primary",
    ),
    "MASTERDOWN": (Then.RECONNECT, "this node is a replica, and its primary is gone"),
    "LOADING": (Then.RETRY, "it reads its data after a start"),
    "BUSY": (Then.RETRY, "another script runs for too long; ours has not begun"),
    "CLUSTERDOWN": (Then.RETRY, "the cluster has no node for this slot until a failover is over"),
    "TRYAGAIN": (Then.RETRY, "this slot is being moved to another node"),
    "ASK": (Then.RETRY, "this slot is being moved to another node"),
    "MOVED": (Then.RETRY, "this slot has been moved to another node"),
    "NOREPLICAS": (Then.REFUSE, "fewer replicas than `min-replicas-to-write`: a write could be lost"),
    "OOM": (Then.REFUSE, "`maxmemory` is reached; commands that free memory are still executed"),
    "MISCONF": (Then.REFUSE, "it cannot write to its disk"),
    "NOPERM": (Then.REFUSE, "the user of the URL lacks a right that the documents list"),
}
"""The first word of Redis's answer, our reaction, and the reason. Any other answer is a fault in Limpet."""

_CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (ReadOnlyError, "READONLY"),
    (MasterDownError, "MASTERDOWN"),
    (BusyLoadingError, "LOADING"),
    (ClusterDownError, "CLUSTERDOWN"),
    (TryAgainError, "TRYAGAIN"),
    (AskError, "ASK"),
    (OutOfMemoryError, "OOM"),
    (NoPermissionError, "NOPERM"),
    # The library gave up: after many redirections of one command, or because no node could be asked.
    (ClusterError, "TRYAGAIN"),
    (RedisClusterException, "CLUSTERDOWN"),
)
"""The library removes the first word if it has a class for it; subclasses come first."""
_NON_LOCAL: Final = "non local key"
"""Redis stops a script with this error if its slot is being moved and the check before the start did not see it."""
_LOST: Final = (RedisConnectionError, RedisTimeoutError, OSError)
_UNREADABLE: Final = ("unreadable record", "Bad data format", "Missing bytes", "WRONGTYPE", "too short")
"""Scripts fail with one of these on a record that no release of Limpet wrote."""


def code_of(error: BaseException) -> str:
    """Return the first word of the answer of Redis."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    text = str(error)
    return "TRYAGAIN" if _NON_LOCAL in text else text.partition(" ")[0]


def spoils(error: BaseException) -> bool:
    """Return True if a connection with this answer must not be used again."""
    return REFUSALS.get(code_of(error), (None,))[0] is Then.RECONNECT


def translated(error: Exception) -> Exception:
    """Return the exception for the sender of a failed command."""
    then, _ = REFUSALS.get(code_of(error), (None, ""))
    if code_of(error) == "OOM":
        return NoRoom("the store cannot be written now")
    if then is Then.REFUSE:
        return StoreUnavailable("the store cannot be written now")
    if then is not None:
        return Later(code_of(error))
    if isinstance(error, _LOST):
        return Lost(str(error))
    if any(words in str(error) for words in _UNREADABLE):
        return Unreadable("a record in the store cannot be read")
    return StoreError("the store failed")
