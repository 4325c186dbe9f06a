"""Decisions about state that stores share, and ids as text: facts come in, a decision goes out. No I/O and no clock.

The rules of a session are in `holdfast.core.rules`.
"""

from holdfast.errors import StoreUnavailable
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
