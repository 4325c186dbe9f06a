"""The memory of messages, and which of them are refused for it (`core/ledger.py` has the shares).

Slots limit the number of calls, not their size: a message of 15 KiB may take 300 KiB of memory after it is decoded, for
as long as its handler runs. So every message is charged: from its first byte while it is read, and at its decoded cost
before it is decoded. The charge is a member of the message's `Caller`, which all exchanges of the message share. It is
freed when the last exchange drops it: its request was refused, or its handler has ended.

A plain call pays nothing. While less than a quarter of the figure is in use, a short message over HTTP is charged only
if it is not answered within a pass of the loop (`WaitingResponse.pay`). Until then a connection has at most one of
them, of at most 24 KiB, and is itself charged with 8 KiB. So in a quarter of the figure there is room for as many
connections as have their messages in the other three.

Answers, cancellations, pings and retries must be accepted also when there is no room, because the running work may wait
for them. But the kind of a message is known only after it is decoded. So a message without room is charged as urgent
and decoded: a request is then refused, and every other message is accepted. These charges end soon, because no new work
begins with them. If there is no room for urgent ones either, every message is refused.
"""

from typing import Final

from limpet.config import KIB, Limits
from limpet.core.ledger import KEPT, PARTIAL, WORK, Account, Charge, Ledger
from limpet.engine.caller import Caller
from limpet.engine.decoding import Decoding
from limpet.errors import TooManySessions, TooMuchWork
from limpet.protocol.methods import CONTROL
from limpet.protocol.sessionless import declared_version
from limpet.transports.memory import usual_figure
from limpet.wire.jsonrpc import Message, Request
from limpet.wire.shape import MOST_BYTES, cost

CALL_BYTES: Final = 8 * KIB
"""The memory of a call besides its message: task, writer, exchange, connection (`python -m tests.attacks.costs`: 2.6
KB without the connection)."""
LARGE: Final = 16 * KIB
"""Messages from this size on are taken in a task, and their memory is freed at once when their handler has ended."""
_SESSION_BYTES: Final = 4 * KIB
"""The memory of a session besides the description of its client (`python -m tests.attacks.costs`: 3.2 KB with a
short one)."""
_LOCAL: Final = "local"
"""The account of a client without an address: in this process, on stdio, or behind a Unix socket."""
_PASSING: Final = CONTROL - {"initialize"} | {"tasks/get", "tasks/update", "tasks/cancel"}


def short_charge(account: Account, size: int) -> Charge:
    """Charge a short message of this length, whether or not there is room: its call runs."""
    charge = account.open()
    charge.set(size * MOST_BYTES + CALL_BYTES)
    return charge


def is_large(caller: Caller) -> bool:
    """True if the message of a caller is large."""
    return caller.charge is not None and caller.charge.size >= LARGE


class Load:
    """The ledger of a process, the cost of messages, and the turns in which large ones are decoded."""

    def __init__(self, limits: Limits) -> None:
        self._values = limits.values
        self.ledger: Ledger = Ledger(limits.memory or usual_figure())
        self.decoding: Decoding = Decoding()

    def account(self, who: str | None, session: object = "") -> Account:
        """Return the account of a message. `who` is a principal's key, or the address of an anonymous client."""
        return self.ledger.account(who or _LOCAL, session)

    def account_of(self, caller: Caller) -> Account:
        """Return the account that the message of a caller is charged to."""
        return caller.payer or self.account(caller.key)

    def session(self, caller: Caller, declared: bytes = b"") -> Charge:
        """Charge the memory of a session while this process has it, with what its client has declared.

        Raises:
            TooManySessions: there is no room.
        """
        size = _SESSION_BYTES + cost(declared, self._values)
        charge = self.account_of(caller).take(size, light=KEPT)
        if charge is None:
            raise TooManySessions
        return charge

    def intake(self, account: Account) -> "Intake":
        """Begin to take a message."""
        return Intake(self, account)

    def cost(self, data: bytes) -> int:
        """Return the memory cost of a message and its call."""
        return cost(data, self._values) + CALL_BYTES


class Intake:
    """One message that is being read, and its charge so far."""

    __slots__ = ("_charge", "_load", "is_reserved")

    def __init__(self, load: Load, account: Account) -> None:
        self._load = load
        self._charge = account.open()
        self.is_reserved: bool = False
        """It is charged as urgent: only messages that belong to running work are taken."""

    def read(self, size: int) -> None:
        """Charge the bytes that were read so far.

        Raises:
            Busy: there is no room for it.
        """
        self._take(size, PARTIAL)

    def charge(self, data: bytes) -> Charge:
        """Charge the memory of the whole message, before it is decoded.

        Raises:
            Busy: there is no room for it.
        """
        self._take(self._load.cost(data))
        return self._charge

    async def charge_in_turn(self, data: bytes) -> Charge:
        """As `charge`, when the message may be decoded: to count its values takes long too.

        Raises:
            Busy: there is no room for it.
        """
        self._take(len(data))
        await self._load.decoding.turn(self._charge.account, len(data))
        return self.charge(data)

    def _take(self, size: int, light: int = WORK) -> None:
        if self._charge.grow(size, light=light):
            return
        self.is_reserved = True
        if not self._charge.grow(size, urgent=True, light=light):
            raise TooMuchWork

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
