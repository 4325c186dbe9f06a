"""The answers of PostgreSQL when it does not execute a statement, and our reaction: one table.

A statement is one transaction. An error reply is certain: nothing of it is applied. Only a lost connection is uncertain
(`Lost`): every command may be sent again (`lanes.py`).

The text of PostgreSQL goes into the log and never into an error that a client could see: it may name roles, hosts and
values.
"""

from enum import Enum
from typing import Any, Final

from limpet.errors import StoreError, StoreUnavailable
from limpet.stores.shared.answers import Later
from limpet.stores.shared.shelf import NoRoom, NotKept


class Reaction(Enum):
    """The reaction to a refusal."""

    RECONNECT = "leave this connection and try again"
    RETRY = "try again for a few seconds: it passes by itself"
    PREPARE = "look at the schema again: it was removed, or a part of it"
    FULL = "refuse everything that needs room"
    REFUSE = "refuse at once, as unavailable: an operator has to change something"


REFUSALS: Final[dict[str, tuple[Reaction, str]]] = {
    "25006": (Reaction.RECONNECT, "this server is a read-only standby, or its transactions are read-only; name the primary, or all hosts"),
    "57P01": (Reaction.RECONNECT, "it is shutting down"),
    "57P02": (Reaction.RECONNECT, "it restarts after a crash"),
    "57P03": (Reaction.RECONNECT, "it is starting"),
    "57P05": (Reaction.RECONNECT, "the connection was idle for too long"),
    "08P01": (Reaction.RECONNECT, "a pooler has lost its connection to the server"),
    "53300": (Reaction.RETRY, "it has no connection left (max_connections): give it more, or this server a smaller pool="),
    "40001": (Reaction.RETRY, "another transaction was faster"),
    "40P01": (Reaction.RETRY, "two transactions waited for each other"),
    "55P03": (Reaction.RETRY, "another transaction holds a lock for long"),
    "57014": (Reaction.RETRY, "the statement took longer than statement_timeout"),
    "26000": (Reaction.RECONNECT, "a pooler gives the connection to others between two statements, and loses prepared statements"),
    "42P05": (Reaction.RECONNECT, "a pooler gives the connection to others between two statements, and mixes prepared statements"),
    "42P01": (Reaction.PREPARE, "a table is missing"),
    "42883": (Reaction.PREPARE, "a function is missing"),
    "3F000": (Reaction.PREPARE, "the schema is missing"),
    "53100": (Reaction.FULL, "its disk is full"),
    "53200": (Reaction.FULL, "it is out of memory"),
    "53000": (Reaction.FULL, "it lacks a resource"),
    "58030": (Reaction.FULL, "it cannot write to its disk"),
    "42501": (Reaction.REFUSE, "the role of the store's URL lacks a right; docs/stores.md lists them, and `limpet store sql` grants them"),
    "28P01": (Reaction.REFUSE, "it refuses the password of the store's URL"),
    "28000": (Reaction.REFUSE, "it refuses the role of the store's URL (pg_hba.conf)"),
    "3D000": (Reaction.REFUSE, "the database of the store's URL does not exist"),
}  # fmt: skip
"""The SQLSTATE, our reaction, and the reason. Any other answer is a fault in Limpet."""
KEPT: Final = "LMKPT"
"""Raised by our function for a commit (sql/functions.sql): its principal may not keep so much."""
POOLED: Final = frozenset(("26000", "42P05"))


def code_of(error: BaseException | None) -> str:
    """Return the SQLSTATE of an error; empty if it is not an answer of PostgreSQL."""
    state: Any = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""


def translated(error: Exception) -> Exception:
    """Return the exception for the sender of a statement that PostgreSQL has refused."""
    if code_of(error) == KEPT:
        return NotKept()
    then, reason = REFUSALS.get(code_of(error), (None, ""))
    if then is Reaction.FULL:
        return NoRoom(f"the store cannot be written now: {reason}")
    if then is Reaction.REFUSE:
        return StoreUnavailable(f"the store refuses: {reason}")
    if then is not None:
        return Later(reason)
    return StoreError("the store failed")
