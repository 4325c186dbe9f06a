"""Decisions about state that stores share, and ids as text: facts come in, a decision goes out. No I/O and no clock.

The rules of a session are in `holdfast.core.rules`.
"""

import msgspec

from holdfast.errors import StateError, StoreUnavailable
from holdfast.stores.base import Cell
from holdfast.stores.kept import growth
from holdfast.wire.jsonrpc import RequestId


def id_text(request_id: RequestId) -> str:
    """Return an id as text in which 1 and "1" differ."""
    return f"i{request_id}" if isinstance(request_id, int) else f"s{request_id}"


def id_from(text: str) -> RequestId:
    """Return the id that `id_text` wrote."""
    return int(text[1:]) if text[0] == "i" else text[1:]


def lease_ended() -> StoreUnavailable:
    """Return the error of a replica without a lease.

    After it was declared dead it may begin no work: no other replica would find the work.
    """
    return StoreUnavailable("the lease of this replica has ended, and it has not got another yet")


# State


def state_growth(
    limit: int, held: int, field: str, cell: Cell | None, value: bytes | None
) -> tuple[int, int]:
    """Return by how much a change of a field grows its area, and its principal's total (`holdfast.stores.kept`).

    Raises:
        StateError: the area has no room for it. A change that does not grow is never refused.
    """
    length = len(field.encode())
    before = None if cell is None else length + len(cell.value)
    after = None if value is None else length + len(value)
    more = (after or 0) - (before or 0)
    if more > 0 and held + more > limit:
        raise StateError(f"state is limited to {limit} bytes; {field!r} would exceed it")
    return more, growth(before, after)


def added(field: str, cell: Cell | None, by: int) -> int:
    """Return a counter's new value. An absent field counts as 0.

    Raises:
        StateError: the field does not hold an integer.
    """
    try:
        return (msgspec.json.decode(cell.value, type=int) if cell else 0) + by
    except msgspec.DecodeError:
        raise StateError(f"state field {field!r} does not hold an integer") from None
