"""What the work in flight costs in memory, by session, principal and process, and which requests are refused for it.

Slots bound how many calls there are, not how large: a message of 4 MiB may occupy 15 MB once it is decoded, for as long
as its handler runs. So a message of 16 KiB or more is charged, from the moment it is read and before it is decoded; a
shorter one is not, because its slot bounds it and a plain call must cost nothing. The charge goes with the caller of
the message (`Caller.charge`), which every exchange of it has, and its bytes are free when the last one lets go of it:
when the request was refused, or its handler has ended (`Exchange.let_go`) and its response with it.

Answers, cancellations, pings and retries must pass when the budget is used up, because the work that uses it may wait
for just them. What a message is shows only when it is decoded. For this there is a reserve of an eighth, in which
messages are decoded that find no room otherwise: requests are then refused, and everything else is taken. It is short,
since nothing that is charged to it begins new work; when it is used up as well, everything large is refused.
"""

from typing import Final

from holdfast.config import KIB, Limits
from holdfast.core.budget import Budget, Charge
from holdfast.errors import TooMuchWork
from holdfast.protocol.methods import CONTROL
from holdfast.wire.jsonrpc import Message, Request, cost

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
        """Return the holder of memory that a principal keeps for long. Anonymous clients have none: they share the whole budget."""
        return {"principal": owner} if owner else {}

    def cost(self, data: bytes) -> int:
        """Return what a message costs."""
        return cost(data, self._values)


class Intake:
    """One message that is being read, and what it is charged so far."""

    __slots__ = ("_charge", "_load", "_session", "_who", "is_reserved")

    def __init__(self, load: Load, who: str, session: object) -> None:
        # Made for every message whose length is not known beforehand: nothing is charged until it is large.
        self._load = load
        self._who = who
        self._session = session
        self._charge: Charge | None = None
        self.is_reserved: bool = False
        """It is charged to the reserve: only messages that must pass are taken."""

    def read(self, size: int) -> None:
        """Charge what has been read so far.

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
        """Charge the memory of the whole message, before it is decoded. A short one costs nothing: None.

        Raises:
            Busy: there is no room for it.
        """
        if len(data) < FREE:
            return None
        self.read(self._load.cost(data))
        return self._charge

    def may_pass(self, message: Message | list[Message]) -> bool:
        """True if a decoded message may be taken: there is room for it, or it begins no new work."""
        return not self.is_reserved or all(map(_passes, message if isinstance(message, list) else [message]))


def _passes(message: Message) -> bool:
    """True if a message belongs to work that runs already."""
    return not isinstance(message, Request) or message.method in _PASSING or "requestState" in message.params
