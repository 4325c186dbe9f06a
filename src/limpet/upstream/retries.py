"""Which failed requests are sent again, and when (law 12).

An attempt fails in one of two ways:

    NotSent              the server certainly did not execute the request. It is sent again until `patience` is over;
                         after a lost session only once: a server that loses the next session too will lose them all
    Broken,              the server may have executed it. It is sent again only if the caller says that a repeat does
    OutcomeUnknown       no harm (`may_repeat`), at most `repeats` times. With an idempotency key (`has_key`) it is
                         sent again after a break: the server does not run it twice, and an outcome that it calls
                         unknown stays so.

One attempt whose outcome is unknown makes the outcome of the whole request unknown. Later attempts cannot change that:
if they fail too, the caller gets `OutcomeUnknown`.

`Connection.request` sends. Most requests have no failed attempt, so the first failure makes the object.
"""

import asyncio

from limpet.errors import Broken, NotSent, OutcomeUnknown
from limpet.ports import Ports
from limpet.upstream.backoff import Backoff
from limpet.upstream.link import Overloaded, SessionLost, UpstreamLink
from limpet.upstream.settings import ClientLimits, ClientTimes


class Failures:
    """The failed attempts of one request."""

    def __init__(
        self,
        method: str,
        began: float,
        *,
        may_repeat: bool,
        has_key: bool,
        limits: ClientLimits,
        times: ClientTimes,
        ports: Ports,
    ) -> None:
        """`began` is when the first attempt was made."""
        self._method = method
        self._may_repeat = may_repeat
        self._has_key = has_key
        self._most = limits.repeats
        self._deadline = began + times.patience
        self._clock, random, self._observer = ports
        self._backoff = Backoff(random, times.backoff)
        self._repeats = self._losses = 0
        self.doubt: OutcomeUnknown | None = None
        """The error of the request from now on, if an attempt may have been executed."""

    async def add(self, error: NotSent | Broken | OutcomeUnknown, link: UpstreamLink) -> None:
        """Wait until the request may be sent again.

        Raises:
            NotSent: the server could not be reached, and nothing was executed.
            OutcomeUnknown: it is unknown whether it was executed.
        """
        pause = self._after_not_sent(error, link) if isinstance(error, NotSent) else self._after_doubt(error)
        if pause is not None:
            self._observer.note("client.again", method=self._method)
            await asyncio.sleep(pause)

    def _after_not_sent(self, error: NotSent, link: UpstreamLink) -> float | None:
        """Return the seconds until the next attempt; None: at once."""
        self._losses += link.lost
        pause = self._backoff.pause(error.retry_after)
        most = 1 if isinstance(error, SessionLost) else self._most
        if self._losses > most or self._clock.now() + pause > self._deadline:
            self.raise_doubt(error)
            raise error
        # After the first loss the next link is another session. Try it without a pause.
        return None if self._losses == 1 and link.lost else pause

    def raise_doubt(self, error: NotSent) -> None:
        """Raise the doubt that an earlier attempt has left, if there is one: another one could not be made.

        It has a cause: `mask_errors` hides the texts of errors with a cause.
        """
        if self.doubt is not None:
            raise self.doubt from error

    def _after_doubt(self, error: Broken | OutcomeUnknown) -> float:
        self.doubt = _unknown(self._method, error)
        is_busy = isinstance(error, Overloaded)
        # Waiting for a busy server is bounded by time; a server that breaks is bounded by attempts.
        self._repeats += not is_busy
        pause = self._backoff.pause(error.retry_after if isinstance(error, Overloaded) else None)
        is_late = is_busy and self._clock.now() + pause > self._deadline
        is_safe = self._may_repeat or (self._has_key and isinstance(error, Broken))
        if not is_safe or self._repeats > self._most or is_late:
            raise self.doubt from error
        return pause


def _unknown(method: str, error: Exception) -> OutcomeUnknown:
    if isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(
        f"{error}. It is unknown whether {method} was executed: check before you send it again, "
        "or mark calls that may be repeated as idempotent"
    )
