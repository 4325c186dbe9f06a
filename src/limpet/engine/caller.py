"""The sender of a request, and the connection that waits for the answer."""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from limpet.auth import Principal
from limpet.core.ledger import Account, Charge
from limpet.ports import CallSpan


class WaitingConnection(Protocol):
    """The connection of a request. A request that no connection waits for does not start (law 12)."""

    @property
    def address(self) -> str:
        """The address of the client, as limits count it."""

    @property
    def account(self) -> Account | None:
        """The account that its messages are charged to; found when it is first needed."""

    @property
    def gone(self) -> bool:
        """True if the client is known to have disconnected."""

    def watch(self, on_gone: Callable[[], object]) -> None:
        """Call `on_gone` when the client disconnects, and no function that was given before."""

    async def look(self) -> None:
        """Let the loop read everything that has arrived, and set `gone`.

        A client that has closed its side counts as gone.
        """


class Caller(Struct, frozen=True):
    """The sender of a request: the key that its sessions are bound to, its principal, and the request's headers."""

    key: str
    principal: Principal | None = None
    headers: Mapping[str, str] = {}
    charge: Charge | None = None
    """The memory that the message takes; freed when this object and its copies are deleted (`load.py`). None: its
    waiter has the charge, or it came from no client."""
    waiter: WaitingConnection | None = None
    """The connection that waits for the answer. None: on stdio, and at a home, which learns it from the store."""
    account: Account | None = None
    """The account that the message is charged to, if it is known already, and is not the one of the principal."""
    conversation: str = ""
    """The hidden session of the conversation that a request of 2026-07-28 names (`conversations.py`); empty if it
    names none."""
    span: CallSpan | None = None
    """The span of the request. That of a call is the one of its first request. None: it is not traced, or has just
    arrived."""
    is_inner: bool = False
    """The client runs in this process: its requests are part of the work that runs here, and a stop does not refuse
    them."""

    @property
    def payer(self) -> Account | None:
        """The account that the message is charged to; None: that of the principal."""
        return self.account if self.account is not None or self.waiter is None else self.waiter.account

    @property
    def owner(self) -> str:
        """The owner of places that clients share (`core/admission.py`): the principal.

        The address if it is anonymous.
        """
        return self.key or ("" if self.waiter is None else self.waiter.address)
