"""`Host`: the part of a `Server` that its own parts use.

Functions, contexts and catalogs get the server that answers as a `Host`, so that they depend on these few
members and not on the module of `Server`, which depends on all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from limpet.config import Settings

if TYPE_CHECKING:
    from limpet.core.names import NameKind, Naming
    from limpet.engine.engine import Engine


class Host(ABC):
    """The server that answers a call."""

    settings: Settings

    @property
    @abstractmethod
    def name(self) -> str:
        """The server's name."""

    @property
    @abstractmethod
    def naming(self) -> Naming | None:
        """The names under which clients know the components; None: their own."""

    @property
    @abstractmethod
    def engine(self) -> Engine:
        """The engine that all endpoints of this server share. It is built on first use."""

    @property
    @abstractmethod
    def is_built(self) -> bool:
        """True if this process has built the engine."""

    @property
    @abstractmethod
    def lifespan_value(self) -> Any:
        """The value that the lifespan yielded; None without a lifespan or before it is entered."""

    def name_for_clients(self, kind: NameKind, name: str) -> str | None:
        """Return the name under which clients know a component; None: it is hidden from all of them."""
        return name if self.naming is None else self.naming.outer(kind, name)

    @abstractmethod
    async def resource_updated(self, uri: str) -> None:
        """Notify every client that subscribed to this resource."""
