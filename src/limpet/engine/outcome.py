"""How an exchange ends: with a result or an error, and by which input of its table."""

from typing import Final

from msgspec import Struct

from limpet.core.exchange import ExchangeInput
from limpet.errors import McpError
from limpet.stores.base import Ending
from limpet.wire.jsonrpc import RequestId, encode, refusal, result_message

ANSWER_DROPPED: Final = (
    "The call was executed already, or its process died while it ran; it was not executed again. Its answer was dropped: the answers "
    "that are kept took too much room"
)
"""For a repeat of a request whose answer was kept and had to be dropped."""


class Outcome(Struct, frozen=True):
    """An encoded result, or an error."""

    result: bytes = b""
    error: McpError | None = None
    happened: ExchangeInput = ExchangeInput.RETURNED
    """The input that ends the exchange: its handler, a cancellation, the end of its session, …"""

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        error = self.error
        return len(self.result) + (len(error.message) + len(encode(error.data)) if error else 0)

    def message(self, request_id: RequestId) -> bytes:
        """Return the answer to the request with this id."""
        if self.error is not None:
            return refusal(request_id, self.error)
        return result_message(request_id, self.result)


def ending(error: McpError, tag: int) -> Ending:
    """Return the error as the end of each exchange that is in flight when its session is closed."""
    before, name, after = refusal(0, error).partition(b'"id":0')
    return Ending(before + name[:-1], after, tag)
