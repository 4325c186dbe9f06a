"""Calls under way: whose answer is whose, and whose progress.

Ids are minted once per client and never reused, so an answer that comes late, or by another
stream than its own, finds its call or nobody.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.client.feed import Feed
from holdfast.errors import OUTCOME_UNKNOWN, McpError, OutcomeUnknown
from holdfast.wire.jsonrpc import Response


class Call:
    """One request on its way."""

    __slots__ = ("answer", "feed", "id", "method", "params")

    def __init__(self, number: int, method: str, params: dict[str, Any], feed: Feed | None) -> None:
        self.id: int = number
        self.method: str = method
        self.params: dict[str, Any] = params
        self.feed: Feed | None = feed
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<Call {self.id} {self.method}>"

    def settle(self, response: Response) -> None:
        """Take the answer; a second one is passed over."""
        if self.answer.done():
            return
        if response.error is None:
            self.answer.set_result(response.result)
        else:
            self.answer.set_exception(error_of(response.error))

    def fail(self, error: Exception) -> None:
        """End without an answer."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Calls:
    """The calls of one connection by id."""

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: dict[int | str, Call] = {}

    def __repr__(self) -> str:
        return f"<Calls {len(self._under_way)} under way>"

    def __len__(self) -> int:
        return len(self._under_way)

    def add(self, call: Call) -> None:
        self._under_way[call.id] = call

    def remove(self, call: Call) -> None:
        """Forget a call; an answer that is still to come finds nobody."""
        self._under_way.pop(call.id, None)
        if call.answer.done() and not call.answer.cancelled():
            # Read, so that nobody is told of an exception that nobody waited for.
            call.answer.exception()

    def settle(self, response: Response) -> None:
        """Give an answer to its call."""
        call = self._under_way.get(response.id)
        if call is not None:
            call.settle(response)

    def progress(self, params: dict[str, Any]) -> None:
        """Give progress to the call whose id is the token."""
        token = params.get("progressToken")
        call = self._under_way.get(token) if isinstance(token, int | str) else None
        if call is not None and call.feed is not None:
            call.feed.put(params.get("progress"), params.get("total"), params.get("message"))

    def fail_all(self, make: Callable[[Call], Exception]) -> None:
        """End every call without an answer."""
        for call in list(self._under_way.values()):
            call.fail(make(call))


def error_of(error: dict[str, Any]) -> McpError:
    """Return a JSON-RPC error object as the exception it stands for."""
    code, message, data = error["code"], error["message"], error.get("data")
    if code == OUTCOME_UNKNOWN:
        return OutcomeUnknown(message)
    return McpError(code, message, data)
