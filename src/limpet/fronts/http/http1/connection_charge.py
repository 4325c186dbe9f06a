"""The memory of one connection, charged to its address: itself, heads, bytes that wait to be read or taken.

It is counted after reads that the parser takes, when the buffer for the client becomes full or empty, and by the sweep.
A plain call of a known head needs no count, and costs nothing here.

The bytes for the client are charged without a question: they are in memory. `Acceptor` ends slow clients while there
are too many. For what the client sends there must be room, or its connection ends.
"""

import sys
from typing import Final

from limpet.config import KIB
from limpet.core.ledger import KEPT, Account, encoded

CONNECTION_BYTES: Final = 8 * KIB
TLS_BYTES: Final = 64 * KIB
"""The memory of an idle connection, measured; with TLS besides the buffers for its longest read, which are half as long
again."""
_TLS_READ: Final = 16 * KIB
"""The longest read that is contained in `TLS_BYTES`."""


class ConnectionCharge:
    """The charge of one connection."""

    __slots__ = ("_base", "_charge", "longest")

    def __init__(self, account: Account, *, tls: bool) -> None:
        self._charge = account.open()
        self._base = TLS_BYTES if tls else CONNECTION_BYTES
        self.longest: int = _TLS_READ if tls else sys.maxsize
        """The longest read so far, if the connection keeps a buffer of that length: call `read` for a longer one."""

    def begin(self) -> bool:
        """Charge a new connection; False: there is no room for it.

        It is urgent: an answer or a cancellation may come on it.
        """
        return self._charge.grow(self._base, urgent=True, light=KEPT)

    def read(self, size: int) -> None:
        """Note a read that is longer than all before it."""
        self._base += encoded(size) - encoded(self.longest)
        self.longest = size

    def count(self, received: int, unsent: int) -> bool:
        """Charge the bytes of this connection now; False: there is no room for what its client has sent."""
        charge, received = self._charge, self._base + received
        if received + unsent > charge.size and not charge.grow(received, urgent=True):
            return False
        charge.set(received + unsent)
        return True

    def end(self) -> None:
        """Free the bytes of a connection that is lost."""
        self._charge.free()
