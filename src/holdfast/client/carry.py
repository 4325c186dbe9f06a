"""One call carried through everything that can go wrong on its way.

What was certainly not executed is sent again while patience lasts. What may have been is sent again
only if it may be repeated; otherwise the caller gets `OutcomeUnknown` (law 12). One attempt whose
outcome is unknown makes the outcome of the whole call unknown, whatever the later attempts met.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.client.backoff import Backoff
from holdfast.client.calls import Call
from holdfast.client.connection import Connection
from holdfast.client.feed import Feed
from holdfast.client.hello import Hello
from holdfast.client.link import Link, Overloaded
from holdfast.client.settings import ClientLimits, ClientTimes
from holdfast.errors import Broken, NotSent, OutcomeUnknown
from holdfast.ports import Clock, Observer, Random

MirrorHeaders = Callable[[str, dict[str, Any]], Mapping[str, str]]
"""Returns the headers that mirror a call's parameters."""


class Carrier:
    """Carries a client's calls."""

    def __init__(
        self,
        connection: Connection,
        hello: Hello,
        mirror: MirrorHeaders,
        limits: ClientLimits,
        times: ClientTimes,
        ports: tuple[Clock, Random, Observer],
    ) -> None:
        self._connection = connection
        self._hello = hello
        self._mirror = mirror
        self._limits = limits
        self._times = times
        self._clock, self._random, self._observer = ports

    async def carry(self, method: str, params: dict[str, Any], *, feed: Feed | None, may_repeat: bool) -> Any:
        """Return the call's result.

        Raises:
            McpError: the server answered with an error; OutcomeUnknown if nobody knows what became of the call.
            NotSent: the server could not be reached, and nothing was executed.
        """
        backoff = Backoff(self._random, self._times.backoff)
        deadline = self._clock.now() + self._times.patience
        repeats = losses = 0
        doubt: OutcomeUnknown | None = None
        while True:
            try:
                link = await self._connection.link()
            except NotSent as error:
                raise doubt or error from error.__cause__
            try:
                return await self._send(link, method, params, feed)
            except NotSent as error:
                # The next link is another session. Nobody has looked at the call.
                losses += link.lost
                pause = backoff.pause(error.retry_after)
                if losses > self._limits.repeats or self._clock.now() + pause > deadline:
                    raise doubt or error from error.__cause__
                if losses == 1 and link.lost:
                    continue
            except (Broken, OutcomeUnknown) as error:
                doubt = _unknown(method, error)
                is_busy = isinstance(error, Overloaded)
                # A server that is busy is waited for; one that breaks is not tried for ever.
                repeats += not is_busy
                pause = backoff.pause(error.retry_after if isinstance(error, Overloaded) else None)
                is_late = is_busy and self._clock.now() + pause > deadline
                if not may_repeat or repeats > self._limits.repeats or is_late:
                    raise doubt from error
            self._observer.note("client.again", method=method)
            await asyncio.sleep(pause)

    async def _send(self, link: Link, method: str, params: dict[str, Any], feed: Feed | None) -> Any:
        number = self._connection.number()
        stamped = self._hello.stamp(
            params,
            version=link.version,
            is_modern=link.is_modern,
            progress_token=None if feed is None else number,
        )
        headers = self._mirror(method, params) if link.is_modern else {}
        return await link.request(Call(number, method, stamped, feed), headers)


def _unknown(method: str, error: Exception) -> OutcomeUnknown:
    if isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(
        f"{error}. It is unknown whether {method} was executed: check before you send it again, "
        "or mark calls that may be repeated as idempotent"
    )
