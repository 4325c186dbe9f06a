"""The memory cost of the work in flight, by session, principal and process, and which requests are refused for it.

Slots limit the number of calls, not their size: a message of 4 MiB may take 15 MB of memory after it is decoded, for as
long as its handler runs. So a message of 16 KiB or more is charged to a budget. The charge begins while the message is
read, before it is decoded. A shorter message is not charged: the limit of slots is enough for it, and a plain call must
cost nothing. The charge is a member of the message's `Caller`, which all exchanges of the message share. It is freed when
the last exchange drops it: its request was refused, or its handler has ended (`Exchange.drop_request`).

Answers, cancellations, pings and retries must be accepted also when the budget is used up, because the running work may
wait for them. But the kind of a message is known only after it is decoded. So there is a reserve of one eighth. If the
budget has no room for a message, the message is charged to the reserve and decoded: a request is then refused, and every
other message is accepted. These charges end soon, because no new work begins with them. If the reserve is full too, every
large message is refused.
"""

from typing import Final

from holdfast.config import KIB, Limits
from holdfast.core.budget import Budget, Charge
from holdfast.errors import TooMuchWork
from holdfast.protocol.methods import CONTROL
from holdfast.protocol.sessionless import declared_version
from holdfast.wire.jsonrpc import Message, Request
from holdfast.wire.shape import cost

FREE: Final = 16 * KIB
"""Messages shorter than this are not charged."""
_RESERVE: Final = 8
_PASSING: Final = CONTROL - {"initialize"} | {"tasks/get", "tasks/update", "tasks/cancel"}


class Load:
    """The budgets of one process."""

    def __init__(self, limits: Limits) -> None:
        self._values = limits.values
        principal, session = limits.principal_work_bytes, limits.session_work_bytes
        self.work: Budget = Budget(limits.work_bytes, principal=principal, session=session)
        self.parked: Budget = Budget(limits.parked_bytes, principal=limits.principal_parked_bytes)
        self.listeners: Budget = Budget(limits.listener_bytes, principal=limits.principal_listener_bytes)
        self.reserve: Budget = Budget(limits.work_bytes // _RESERVE, principal=principal // _RESERVE)

    def __repr__(self) -> str:
        return f"<Load {self.work!r}, reserve {self.reserve!r}>"

    def intake(self, who: str, session: object = "") -> "Intake":
        """Begin to take a message. `who` is a principal's key, or the address of an anonymous client."""
        return Intake(self, who, session)

    @staticmethod
    def held_by(owner: str) -> dict[str, str]:
        """Return the holder for memory that a principal keeps for long; none for anonymous clients, which share the budget."""
        return {"principal": owner} if owner else {}

    def cost(self, data: bytes) -> int:
        """Return the memory cost of a message."""
        return cost(data, self._values)


class Intake:
    """One message that is being read, and its charge so far."""

    __slots__ = ("_charge", "_load", "_session", "_who", "is_reserved")

    def __init__(self, load: Load, who: str, session: object) -> None:
        # Made for every message whose length is not known in advance: nothing is charged until it is large.
        self._load = load
        self._who = who
        self._session = session
        self._charge: Charge | None = None
        self.is_reserved: bool = False
        """It is charged to the reserve: only messages that belong to running work are taken."""

    def read(self, size: int) -> None:
        """Charge the bytes that were read so far.

        Raises:
            Busy: there is no room for it.
        """
        if size < FREE:
            return
        if self._charge is None:
            holders = {"session": (self._who, self._session)} if self._session else {}
            self._charge = self._load.work.open(principal=self._who, **holders)
        if self._charge.grow(size):
            return
        if not self.is_reserved:
            self.is_reserved = True
            self._charge = self._load.reserve.open(principal=self._who)
            if self._charge.grow(size):
                return
        raise TooMuchWork

    def charge(self, data: bytes) -> Charge | None:
        """Charge the memory of the whole message, before it is decoded. None: a short message costs nothing.

        Raises:
            Busy: there is no room for it.
        """
        if len(data) < FREE:
            return None
        self.read(self._load.cost(data))
        return self._charge

    def may_pass(self, message: Message | list[Message]) -> bool:
        """True if a decoded message may be taken: there is room for it, or it begins no new work."""
        return not self.is_reserved or all(map(passes, message if isinstance(message, list) else [message]))


def passes(message: Message) -> bool:
    """True if a message belongs to work that runs already."""
    if not isinstance(message, Request) or message.method in _PASSING:
        return True
    # Only sessionless calls have a state. In a session the member is ignored, and the request is a new call.
    params = message.params
    return "requestState" in params and declared_version(params) is not None
