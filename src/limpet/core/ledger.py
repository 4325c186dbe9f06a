"""The ledger: the memory of a process that clients use, in one sum, with a share for each of them.

Everything that a client can make us keep is charged here at its cost in memory, decoded, from its first byte until it
is gone.

    Ledger                     the process: the figure of the operator, less what the process takes at rest
     └─ Account                a principal; or an address, while the client is anonymous or unknown
         └─ Account            a session of it
             └─ Charge         one thing that is kept: a connection, a message, an answer, a record, a listener, …

How large a share is. No share has a fixed size. A holder that takes bytes must leave as many free as it uses itself (a
session: twice as many). So one client alone gets half of the figure (one session a third), two get a third each, n get
1/(n + 1) each; and a client that comes now always finds room, also if others use as much as they can. The one who uses
most is refused first.

Two grades. New work must also leave an eighth of the figure free. What belongs to work that exists already (an answer
of a client, a cancellation, the result of a call) is `urgent`: it must leave a sixteenth free, and half as many bytes
as its account uses. So new work is refused before running work suffers.

The last sixteenth is for holders that use little. Each of both grades may go below its part while it leaves a multiple
of what its holder uses free: 16 times for work, which ends; 64 times for what its client may keep for long, a
connection, a session or a listener; 4,096 times, which is hardly ever, for a body that its client has not finished,
because that costs the client nothing. So a client with few small calls is served while a thousand addresses keep all
that they can get.

A holder that has nothing else in use may take any size that is free. Otherwise a share below the size of one legal
message would refuse that message forever, instead of making it wait for its turn. If the process has nothing else in
use, any size is taken.

Some things are in memory when they are noticed: bytes that wait for a slow client, for example. They are charged
without a question (`Charge.set`). Then the sum may be above the figure for a moment, nothing new is taken, and their
owner makes room (for unsent answers: `fronts/http/http1/accept.py`).

Why a charge is an object. The bytes are in use while the charge exists. Code that keeps a charged message keeps its
charge beside it; several objects may share one charge; and no path that ends early can forget to free it. Python may
delete an object between any two steps of the code below (the garbage collector runs there), and in any thread. So a
charge that ends changes no number: it puts its size into a queue, which is one step, and the ledger subtracts the sizes
in the queue before it next decides. Only the thread of the event loop changes numbers.
"""

from collections import deque
from typing import Final
from weakref import WeakValueDictionary

_FLOOR: Final = 3
"""New work leaves an eighth of the figure free, urgent work half of that: so many bits less."""
WORK: Final = 4
KEPT: Final = 6
PARTIAL: Final = 12
"""Or 16, 64 or 4,096 times as much as its holder uses, if that is less: so many bits more."""
_PLENTY: Final = 2
"""A quarter of the figure: so many bits less."""
_FREED: Final = 256
"""Sizes that wait to be subtracted, while there is plenty of room."""
_RECENT: Final = 1_024


def encoded(size: int) -> int:
    """Return the memory of encoded bytes of this length: msgspec leaves up to half as much unused behind them."""
    return size + (size >> 1)


class Account:
    """The bytes that one holder uses: a principal or an address; or one of its sessions."""

    __slots__ = ("__weakref__", "above", "ledger", "used")

    def __init__(self, ledger: "Ledger", above: "Account | None") -> None:
        self.ledger: Final = ledger
        self.above: Final = above
        """The account of the principal or the address, if this is a session's."""
        self.used: int = 0

    @property
    def owner(self) -> "Account":
        """The account of the principal or the address."""
        return self.above or self

    @property
    def over(self) -> int:
        """The bytes that a principal or an address uses beyond the share of urgent things.

        Not above 0 if there are none.
        """
        free = self.ledger.total - self.ledger.used
        return self.used - 2 * max(0, free)

    @property
    def room(self) -> int:
        """The bytes that new work may take now; below 0 if there are none."""
        free = self.ledger.total - self.ledger.used
        return min((free - self.owner.used) >> 1, free - self.ledger.reserve)

    def open(self) -> "Charge":
        """Return a charge of 0 bytes, which may grow."""
        return Charge(self, 0)

    def take(self, size: int, *, urgent: bool = False, light: int = WORK) -> "Charge | None":
        """Take bytes. Return None if there is no room."""
        ledger = self.ledger
        # While less than a quarter is in use, no share can be full: the question is asked only after that. In the path
        # of every message.
        if (ledger.charged + size > ledger.plenty or len(ledger.freed) > _FREED) and not self.has_room(
            size, urgent=urgent, light=light
        ):
            return None
        self.used += size
        if self.above is not None:
            self.above.used += size
        ledger.charged += size
        return Charge(self, size)

    def has_room(self, more: int, own: int = 0, *, urgent: bool = False, light: int = WORK) -> bool:
        """Return True if `more` bytes fit. A holder that has only the `own` bytes of a charge may take what is free."""
        ledger = self.ledger
        used = ledger.used if ledger.freed else ledger.charged
        free = ledger.total - used - more
        above = self.above
        share = 2 * free if urgent else free
        floor = min(ledger.total >> (_FLOOR + urgent), (above or self).used + more << light)
        if free < floor:
            return used <= own
        if above is None:
            return self.used + more <= share or self.used <= own
        return (self.used + more <= share >> 1 or self.used <= own) and (
            above.used + more <= share or above.used <= own
        )

    def add(self, size: int) -> None:
        """Add to the bytes in use; a negative size subtracts."""
        self.used += size
        if self.above is not None:
            self.above.used += size
        self.ledger.charged += size


class Charge:
    """Bytes in use. They are free again when the object is deleted, or after `free`."""

    __slots__ = ("account", "size")

    def __init__(self, account: Account, size: int) -> None:
        """Made by an account."""
        self.account: Final = account
        self.size: int = size

    def grow(self, size: int, *, urgent: bool = False, light: int = WORK) -> bool:
        """Take more bytes, up to `size` in total. If there is no room, change nothing and return False."""
        more = size - self.size
        if more > 0:
            if not self.account.has_room(more, self.size, urgent=urgent, light=light):
                return False
            self.account.add(more)
            self.size = size
        return True

    def set(self, size: int) -> None:
        """Use exactly so many bytes, whether or not there is room: they are in memory already."""
        if size != self.size:
            self.account.add(size - self.size)
            self.size = size

    def free(self) -> None:
        """Free the bytes. Safe to call twice."""
        size, self.size = self.size, 0
        if size:
            self.account.ledger.freed.append((size, self.account))

    def __del__(self) -> None:
        if self.size:
            self.account.ledger.freed.append((self.size, self.account))


class Ledger:
    """All charged bytes of a process: at most `total`."""

    __slots__ = ("_accounts", "_figure", "_recent", "charged", "freed", "plenty", "total")

    def __init__(self, total: int) -> None:
        self._figure = total
        self.total: int = total
        """The bytes that may be given out."""
        self.plenty: int = total >> _PLENTY
        """While fewer bytes are in use, no share can be full."""
        self.charged: int = 0
        """Bytes in use, and those in `freed`. Only accounts change it."""
        self.freed: deque[tuple[int, Account]] = deque()
        """Sizes that charges have freed and that are not subtracted yet."""
        self._accounts: WeakValueDictionary[tuple[str, object], Account] = WeakValueDictionary()
        """An account is forgotten with its last charge, and with the last connection and request that refer to it."""
        self._recent: deque[Account] = deque(maxlen=_RECENT)
        """Accounts that stay in any case: a session that sends one short message after another needs no new one each
        time."""

    def __repr__(self) -> str:
        return f"<Ledger {self.used}/{self.total} bytes, {len(self._accounts)} accounts>"

    @property
    def used(self) -> int:
        """Bytes in use."""
        while self.freed:
            size, account = self.freed.popleft()
            # As `add`, without a call.
            account.used -= size
            if account.above is not None:
                account.above.used -= size
            self.charged -= size
        return self.charged

    @property
    def reserve(self) -> int:
        """The bytes that new work leaves free."""
        return self.total >> _FLOOR

    @property
    def pressed(self) -> int:
        """The bytes of the reserve that are in use; not above 0 if there are none."""
        return self.used - self.total + self.reserve

    def divide(self, processes: int, rest: int) -> None:
        """Give out the part of one of several processes, less what it takes at rest.

        At least half of its part stays for clients.
        """
        part = self._figure // processes
        self.total = max(part - rest, part // 2)
        self.plenty = self.total >> _PLENTY

    def account(self, owner: str, session: object = "") -> Account:
        """Return the account of a principal or an address, or of one of its sessions."""
        found = self._accounts.get((owner, session))
        if found is None:
            above = self.account(owner) if session else None
            found = self._accounts[owner, session] = Account(self, above)
            self._recent.append(found)
        return found
