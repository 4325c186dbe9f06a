"""The threads of hosted objects, given to clients in turn.

The frameworks run plain functions with `anyio.to_thread.run_sync`. The default limiter of the event loop gives its tokens (40) to these
functions in the order of arrival, so one client could take all of them. Here a function waits for its turn first, and then takes a token. The
threads stay those of anyio, which also ends or awaits the functions at the end of the program.

A limiter cannot be exchanged by the public interface of anyio, and it may be in use. So the existing one gets a subclass of its
class, which differs in the two methods that all others use.
"""

import math
import sys
from typing import Any

from holdfast.backs.proxy.turns import Slots
from holdfast.transports.threads import OWNER


def share_threads(anyio: Any) -> None:
    """Let the functions of the running loop's default limiter wait in turn by `OWNER`. Does nothing the second time."""
    limiter = anyio.to_thread.current_default_thread_limiter()
    base: Any = type(limiter)
    if hasattr(base, "is_shared_in_turn") or math.isinf(limiter.total_tokens):
        return
    slots = Slots(int(limiter.total_tokens), sys.maxsize)
    owners: dict[object, str] = {}

    class InTurn(base):  # type: ignore[misc]
        """The limiter of one event loop."""

        __slots__ = ()
        is_shared_in_turn = True

        async def acquire_on_behalf_of(self, borrower: object) -> None:
            owner = OWNER.get()
            await slots.take(owner)
            try:
                await super().acquire_on_behalf_of(borrower)
            except BaseException:
                slots.release(owner)
                raise
            owners[borrower] = owner

        def release_on_behalf_of(self, borrower: object) -> None:
            super().release_on_behalf_of(borrower)
            # A token that was taken before has no owner.
            if (owner := owners.pop(borrower, None)) is not None:
                slots.release(owner)

    limiter.__class__ = InTurn
