"""How signs of the client, and their absence, move a session. The callers save it."""

from holdfast.core.lifecycle import Input, State, step
from holdfast.stores.sqlite.rows import SessionRow
from holdfast.stores.sqlite.transaction import Transaction


def come_back(tx: Transaction, session: SessionRow) -> bool:
    """Note that the client is here; tell whether it had been away."""
    session.touched = tx.now
    return _moved(session, Input.RETURNED)


def lose_reader(tx: Transaction, session: SessionRow, *, broke: bool) -> bool:
    """Note that one reader less is there; tell whether this break left the session detached."""
    session.readers -= 1
    session.touched = tx.now
    if not broke or session.readers:
        return False
    session.broke = tx.now
    return _moved(session, Input.BROKE)


def _moved(session: SessionRow, happened: Input) -> bool:
    before = session.state
    session.detached = int(step(before, happened) is State.DETACHED)
    return session.state is not before
