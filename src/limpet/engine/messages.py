"""Messages between processes: one message, one waiter, and one table of kinds.

    kind                  from the process that            to the process that      reply
    ───────────────────   ────────────────────────────────   ──────────────────────   ──────────────────────────────────
    submit                received a request of a session    is the session's home    Began, Ended, Refused, Late, Moved
    retry                 received a retry (2026-07-28)      has the parked call      Began, Late
    notify                received a client's notification   is the session's home    none
    leaving               stops                              lives (every one)        true: it stays
    live, session, …      shows the state to an operator     lives (every one)        `ops/served_process.py`
    state, metrics, …     is the parent of workers           is a worker              `ops/admin/lines.py`

**The message** has a kind, a name, a body, and the process that waits for its reply. A reply is a message too: its kind
is `reply` or `failed`, its name that of the message. Each process has a table of kinds: the type of the body, and the
handler. The reply to a kind that is not in the table is `failed`: the process is alive, and nothing was done.

**Two ways carry it.** Replicas send messages through the store, where each of them has an inbox (`inbox.py`). A parent
and its workers have a socket (`ops/admin/lines.py`): the parent does not open the store, and asks for metrics also
while the store is unavailable.

**The waiter** (`Waiter.reply`) waits until the reply is there, the receiver is dead, or a time is over. Without a reply
the receiver may have the message and carry it out. If that matters, the sender takes the message back
(`Inbox.request`): of the sender and the receiver, one removes it from the inbox.

Only `caller_fields` decides which data of a caller is written to the store. A header that can carry a credential
is left out, by the words in its name, since a reader of the store must not be able to act as the caller. Other headers
travel: a handler sees the same `X-Tenant` wherever it runs. If the operator gave the replicas a key, all headers travel
beside a message, sealed under that key (`auth/forward_key.py`): the operator may have named a header that holds a
credential and has a name of its own, such as `X-Pat`.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from limpet.auth import Principal
from limpet.core.ledger import Charge
from limpet.engine.caller import Caller
from limpet.errors import StoreError
from limpet.stores.base import Duplicate, Refusal
from limpet.wire.jsonrpc import Request, encode

REPLY: Final = "reply"
FAILED: Final = "failed"
"""The kind of a reply whose body is the text of an error."""
REPLIES: Final = frozenset({REPLY, FAILED})
_ALIVE_SECONDS: Final = 1.0
"""How often a waiter checks that the receiver is alive."""
_SECRET: Final = re.compile(
    "auth|cookie|token|secret|key|passw|credential|session|bearer|jwt|assertion|signature|dpop|oidc"
)
"""Words in the names of headers with credentials: Authorization, Proxy-Authorization, Cookie, X-Api-Key,
X-Amz-Security-Token, Cf-Access-Jwt-Assertion, Mcp-Session-Id. A header is rather left out without need than written
with a credential."""
_HARMLESS: Final = frozenset({"idempotency-key"})


def is_secret(name: str) -> bool:
    """True if a header of this name may hold a credential."""
    lowered = name.lower()
    return _SECRET.search(lowered) is not None and lowered not in _HARMLESS


class Message(Struct, frozen=True, omit_defaults=True):
    """A message to another process."""

    kind: str
    name: str
    """Of the message, or of the one that this is the reply to."""
    body: Raw
    reply_to: str = ""
    """The replica that waits for the reply. On a socket there is only one that can."""

    @classmethod
    def of(cls, kind: str, name: str, body: object, reply_to: str = "") -> "Message":
        """Return a message with this body.

        Raises:
            StoreError: the body cannot be encoded, because the principal has claims that JSON cannot hold.
        """
        try:
            return cls(kind, name, Raw(encode(body)), reply_to)
        except (TypeError, ValueError):
            raise StoreError("the claims of this principal cannot be sent to another replica") from None


class Waiter:
    """A task that waits for the reply to one message."""

    def __init__(self) -> None:
        self.replied: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()

    async def reply(
        self, seconds: float = inf, check_gone: Callable[[], Awaitable[bool]] | None = None
    ) -> Message | None:
        """Return the reply; None: it has not come in time, or the receiver is gone."""
        replied, now = self.replied, asyncio.get_running_loop().time
        deadline = now() + seconds
        while not replied.done() and (left := deadline - now()) > 0:
            await asyncio.wait([replied], timeout=min(left, _ALIVE_SECONDS))
            if check_gone is not None and not replied.done() and await check_gone():
                break
        return replied.result() if replied.done() else None


class Replies:
    """The tasks of this process that wait for replies, by the names of their messages."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def expected(self, name: str) -> Iterator[Waiter]:
        """Expect the reply to the message of this name, which is about to be sent."""
        waiter = self._waiting[name] = Waiter()
        try:
            yield waiter
        finally:
            if self._waiting.get(name) is waiter:
                del self._waiting[name]

    def take(self, name: str, reply: Message | None) -> None:
        """Give a reply to the task that waits for it, if one does. None: there will be none."""
        waiter = self._waiting.get(name)
        if waiter is not None and not waiter.replied.done():
            waiter.replied.set_result(reply)

    def close(self) -> None:
        """End all waiting: the receiver is gone."""
        for name in self._waiting:
            self.take(name, None)


class ForwardedRequest(Struct, frozen=True, kw_only=True):
    """The body of `submit` and `retry`: a request, its caller, and the stream that its answer is written to."""

    session: str
    """Of a retry: it exists for this one request."""
    stream: str
    request: Request
    owner: str
    principal: Principal | None
    headers: dict[str, str]
    conversation: str = ""
    """As in `Caller`."""
    streams: bool = True
    """False in always-JSON mode: only the terminal message can be sent."""
    digest: bytes = b""
    """As in `Claim`."""

    def caller(self, charge: Charge | None = None) -> Caller:
        """Return the caller, without the headers that were left out. `charge`: the memory that the request takes."""
        return Caller(self.owner, self.principal, self.headers, charge, conversation=self.conversation)


class Notify(Struct, frozen=True):
    """The body of `notify`: a notification of a session's client."""

    session: str
    method: str
    params: dict[str, Any]


class Began(Struct, frozen=True, tag="began"):
    """The request is claimed, and its stream can be read."""


class Ended(Struct, frozen=True, tag="ended"):
    """The exchange has ended quickly, and no message came before its terminal message."""

    terminal: Raw
    tag: int = 0
    """The tag of the terminal message in the store, which keeps it until the sender's client has taken it."""


class Refused(Struct, frozen=True, tag="refused"):
    """The store has refused the claim: as another exchange's id, or for the reason named."""

    duplicate: Duplicate | None = None
    reason: Refusal | None = None


class Late(Struct, frozen=True, tag="late"):
    """Nothing of the request ran: there was no room for it, or no slot became free in time."""

    message: str
    retry_after: int


class Moved(Struct, frozen=True, tag="moved"):
    """Nothing of the request ran: the replica is stopping, or is not the home of the session."""

    home: str
    """The home as the replica knows it. Its own name: it is stopping, and another one may take the home."""


Verdict = Began | Ended | Refused | Late | Moved
"""The body of the reply to a forwarded request."""


def caller_fields(caller: Caller, *, is_sealed: bool = False) -> dict[str, Any]:
    """Return the data of a caller for a forwarded request.

    `is_sealed`: its headers travel sealed, beside the request.
    """
    headers = (
        {} if is_sealed else {name: value for name, value in caller.headers.items() if not is_secret(name)}
    )
    return {
        "owner": caller.key,
        "principal": caller.principal,
        "headers": headers,
        "conversation": caller.conversation,
    }


decode_message: Final = msgspec.json.Decoder(Message).decode
decode_verdict: Final = msgspec.json.Decoder(Verdict).decode
