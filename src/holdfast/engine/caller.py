"""Who sends a request."""

from collections.abc import Mapping

from msgspec import Struct

from holdfast.auth import Principal
from holdfast.core.budget import Charge


class Caller(Struct, frozen=True):
    """Who sends a request: the key its sessions are bound to, who that is, and the request's headers."""

    key: str
    principal: Principal | None = None
    headers: Mapping[str, str] = {}
    charge: Charge | None = None
    """The memory that a large message takes; freed when this object and its copies are deleted (`load.py`)."""
