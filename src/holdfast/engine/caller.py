"""The sender of a request."""

from collections.abc import Mapping

from msgspec import Struct

from holdfast.auth import Principal
from holdfast.core.budget import Charge


class Caller(Struct, frozen=True):
    """The sender of a request: the key that its sessions are bound to, its principal, and the headers of the request."""

    key: str
    principal: Principal | None = None
    headers: Mapping[str, str] = {}
    charge: Charge | None = None
    """The memory that a large message takes; freed when this object and its copies are deleted (`load.py`)."""
