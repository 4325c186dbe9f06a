"""The server at a URL: HTTP requests to it with credentials, its redirects, its challenges and its refusals.

The meaning of a status that is not 2xx is in `http_status.py`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from limpet.auth.authorizer import Authorizer, Challenge
from limpet.errors import Broken, LimpetError, WireError
from limpet.ports import Clock, Observer, Ports, Random
from limpet.transports.http import HttpAnswer, HttpTransport, SameHeaders
from limpet.transports.secrets import hiding
from limpet.upstream.backoff import Backoff
from limpet.upstream.http_status import MARK, MOVED, UNAUTHORIZED, moved_to, refused, seconds_to_wait
from limpet.upstream.settings import ClientLimits, ClientTimes

Judge = Callable[[LimpetError, Mapping[str, str]], Awaitable[LimpetError]]
SESSION: Final = "mcp-session-id"
MOST_MOVES: Final = 3
MOST_CHALLENGES: Final = 4
"""How often one request answers a 401 or 403. A step-up may need several."""


class HttpServer:
    """The server's URL, and the parts that every link to it uses."""

    __slots__ = ("authorizer", "clock", "headers", "http", "limits", "observer", "random", "times", "url")

    def __init__(
        self,
        url: str,
        http: HttpTransport,
        authorizer: Authorizer | None,
        headers: Mapping[str, str],
        limits: ClientLimits,
        times: ClientTimes,
        ports: Ports,
    ) -> None:
        self.url: str = url
        self.http: HttpTransport = http
        self.authorizer: Authorizer | None = authorizer
        self.headers: Mapping[str, str] = headers
        self.limits: ClientLimits = limits
        self.times: ClientTimes = times
        self.clock: Clock
        self.random: Random
        self.observer: Observer
        self.clock, self.random, self.observer = ports

    def backoff(self) -> Backoff:
        return Backoff(self.random, self.times.backoff)

    def same(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers of requests that differ in nothing but their bodies. Credentials may change."""
        return headers if self.authorizer else SameHeaders({**self.headers, **headers})

    async def open(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        url: str = "",
        judge: Judge | None = None,
    ) -> HttpAnswer:
        """Send an HTTP request and return its response if the status is 2xx. Follow redirects, answer challenges.

        `SameHeaders` have those of the server already, and exist only without an authorizer (`same`). `url` is another
        URL of the server than its own. `judge` gets the meaning of another status and returns the exception to raise.

        Raises:
            LimpetError: the meaning of another status; see `http_status`.
        """
        url, moves, challenges = url or self.url, 0, 0
        while True:
            credentials = await self.authorizer.headers(method, url) if self.authorizer else {}
            # The headers of one request are newer than the credentials.
            is_same = type(headers) is SameHeaders
            sent = headers if is_same else {**self.headers, **credentials, **headers}
            answer = await self.http.open(method, url, sent, body)
            if answer.status < 300:  # noqa: PLR2004 - every 2xx
                return answer
            if answer.status in MOVED and moves < MOST_MOVES:
                answer.close()
                has_credentials = bool(credentials) or "authorization" in sent
                url = moved_to(answer.status, url, answer.header("location"), has_credentials=has_credentials)
                moves += 1
                continue
            challenges += 1
            if not await self._answer_challenge(answer, method, url, credentials, challenges):
                refusal = await self._refusal(answer, credentials, in_session=SESSION in headers)
                raise refusal if judge is None else await judge(refusal, headers)

    async def _answer_challenge(
        self, answer: HttpAnswer, method: str, url: str, credentials: Mapping[str, str], attempt: int
    ) -> bool:
        """Ask the authorizer for other credentials. True: send the request again."""
        authorizer = self.authorizer
        if authorizer is None or answer.status not in UNAUTHORIZED or attempt > MOST_CHALLENGES:
            return False
        challenge = Challenge(
            method=method,
            url=url,
            status=answer.status,
            headers=answer.headers(),
            sent=credentials,
            attempt=attempt,
        )
        try:
            is_satisfied = await authorizer.challenged(challenge)
        except BaseException:
            answer.close()
            raise
        if is_satisfied:
            answer.close()
        return is_satisfied

    async def _refusal(
        self, answer: HttpAnswer, credentials: Mapping[str, str], *, in_session: bool
    ) -> LimpetError:
        try:
            body = await answer.body(self.limits.refusal)
        except (Broken, WireError):
            body = b""
        # The clients of a proxy read the text of a refusal.
        hide = hiding(self.url, {**self.headers, **credentials})
        body = hide(body.decode(errors="replace")).encode()
        wait = seconds_to_wait(answer.header("retry-after"), self.clock.wall())
        mark = answer.header(MARK)
        return refused(answer.status, body, wait, in_session=in_session, mark=mark)
