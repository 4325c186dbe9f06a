"""Which failed requests are sent again, and when (law 12).

An attempt fails in one of two ways:

    NotSent              the server certainly did not execute the request. It is sent again until `patience` is over; after
                         a lost session only once: a server that loses the next session too will lose them all
    Broken,              the server may have executed it. It is sent again only if the caller says that a repeat does
    OutcomeUnknown       no harm (`may_repeat`), at most `repeats` times.

One attempt whose outcome is unknown makes the outcome of the whole request unknown. Later attempts cannot change that:
if they fail too, the caller gets `OutcomeUnknown`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.errors import Broken, NotSent, OutcomeUnknown
from holdfast.ports import Ports
from holdfast.upstream.backoff import Backoff
from holdfast.upstream.link import Overloaded, SessionLost, UpstreamLink
from holdfast.upstream.settings import ClientLimits, ClientTimes


class Retries:
    """Sends the requests of one connection until they are answered or may not be sent again."""

    def __init__(
        self,
        find_link: Callable[[], Awaitable[UpstreamLink]],
        limits: ClientLimits,
        times: ClientTimes,
        ports: Ports,
    ) -> None:
        self._find_link = find_link
        self._limits = limits
        self._times = times
        self._clock, self._random, self._observer = ports

    async def run(
        self, method: str, send: Callable[[UpstreamLink], Awaitable[Any]], *, may_repeat: bool
    ) -> Any:
        """Return the result of a request; `send` sends it once.

        Raises:
            McpError: the server answered with an error; OutcomeUnknown if it is unknown whether it was executed.
            NotSent: the server could not be reached, and nothing was executed.
        """
        backoff = Backoff(self._random, self._times.backoff)
        deadline = self._clock.now() + self._times.patience
        repeats = losses = 0
        doubt: OutcomeUnknown | None = None
        while True:
            try:
                link = await self._find_link()
            except NotSent as error:
                raise doubt or error from error.__cause__
            try:
                return await send(link)
            except NotSent as error:
                losses += link.lost
                pause = backoff.pause(error.retry_after)
                most = 1 if isinstance(error, SessionLost) else self._limits.repeats
                if losses > most or self._clock.now() + pause > deadline:
                    raise doubt or error from error.__cause__
                if losses == 1 and link.lost:
                    # The next link is another session. Try it without a pause.
                    continue
            except (Broken, OutcomeUnknown) as error:
                doubt = _unknown(method, error)
                is_busy = isinstance(error, Overloaded)
                # Waiting for a busy server is bounded by time; a server that breaks is bounded by attempts.
                repeats += not is_busy
                pause = backoff.pause(error.retry_after if isinstance(error, Overloaded) else None)
                is_late = is_busy and self._clock.now() + pause > deadline
                if not may_repeat or repeats > self._limits.repeats or is_late:
                    raise doubt from error
            self._observer.note("client.again", method=method)
            await asyncio.sleep(pause)


def _unknown(method: str, error: Exception) -> OutcomeUnknown:
    if isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(
        f"{error}. It is unknown whether {method} was executed: check before you send it again, "
        "or mark calls that may be repeated as idempotent"
    )
