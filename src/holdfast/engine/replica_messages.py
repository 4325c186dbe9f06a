"""The messages that replicas send each other through the store: requests, client notifications, and replies.

    message     from the replica that                 to the replica that           its reply
    ─────────   ───────────────────────────────────   ───────────────────────────   ─────────────────────────────
    Retry       received a retry (2026-07-28)         has the parked call           Began
    Submit      received a request of a session       is the session's home         Began, Ended, Refused, Late, Moved
    Notify      received a client's notification      is the session's home         none
    Question    an operator has asked                 lives (every one)             Answer
    Leaving     stops                                 lives (every one)             Staying
    Reply       took a message                        sent it                       none

Only `caller_fields` decides which data of a caller is written to the store. A header that can carry a credential
is left out, by the words in its name, since a reader of the store must not be able to act as the caller. Other headers
travel: a handler sees the same `X-Tenant` wherever it runs. If the operator gave the replicas a key, all headers travel
beside a message, sealed under that key (`auth/forward_key.py`): the operator may have named a header that holds a
credential and has a name of its own, such as `X-Pat`.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.auth import Principal
from holdfast.core.ledger import Charge
from holdfast.engine.caller import Caller
from holdfast.stores.base import Duplicate, Refusal
from holdfast.wire.jsonrpc import Request, encode

_SECRET: Final = re.compile(
    "auth|cookie|token|secret|key|passw|credential|session|bearer|jwt|assertion|signature|dpop|oidc"
)
"""Words in the names of headers with credentials: Authorization, Proxy-Authorization, Cookie, X-Api-Key,
X-Amz-Security-Token, Cf-Access-Jwt-Assertion, Mcp-Session-Id. A header is rather left out without need than written with a credential."""
_HARMLESS: Final = frozenset({"idempotency-key"})


def is_secret(name: str) -> bool:
    """True if a header of this name may hold a credential."""
    lowered = name.lower()
    return _SECRET.search(lowered) is not None and lowered not in _HARMLESS


class ForwardedRequest(Struct, frozen=True, kw_only=True):
    """A request, its caller, and the stream that its answer is written to."""

    session: str
    stream: str
    request: Request
    owner: str
    principal: Principal | None
    headers: dict[str, str]
    conversation: str = ""
    """As in `Caller`."""
    streams: bool = True
    """False in always-JSON mode: only the terminal message can be sent."""

    def caller(self, charge: Charge | None = None) -> Caller:
        """Return the caller, without the headers that were left out. `charge`: the memory that the request takes."""
        return Caller(self.owner, self.principal, self.headers, charge, conversation=self.conversation)


class Retry(ForwardedRequest, frozen=True, kw_only=True, tag="retry"):
    """A retry of 2026-07-28. The session exists for this one request."""

    reply_to: str
    """The replica that waits for the reply."""


class Submit(ForwardedRequest, frozen=True, kw_only=True, tag="submit"):
    """A request of a session, for its home."""

    reply_to: str
    digest: bytes
    """As in `Claim`."""


class Notify(Struct, frozen=True, tag="notify"):
    """A notification of a session's client, for its home."""

    session: str
    method: str
    params: dict[str, Any]


class Question(Struct, frozen=True, tag="question"):
    """A question of an operator. The engine does not read it (`questions.py`)."""

    reply_to: str
    question: msgspec.Raw


class Answer(Struct, frozen=True, tag="answer"):
    """The answer to a question of an operator."""

    answer: msgspec.Raw


class Leaving(Struct, frozen=True, tag="leaving"):
    """This replica stops, and asks whether another one stays (`questions.py`)."""

    reply_to: str


class Staying(Struct, frozen=True, tag="staying"):
    """The answer of a replica to one that stops."""

    stays: bool
    """False: it stops too."""


class Began(Struct, frozen=True, tag="began"):
    """The request is claimed, and its stream can be read."""


class Ended(Struct, frozen=True, tag="ended"):
    """The exchange has ended quickly, and no message came before its terminal message."""

    terminal: msgspec.Raw
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


Verdict = Began | Ended | Refused | Late | Moved | Answer | Staying


class Reply(Struct, frozen=True, tag="reply"):
    """The result of a message."""

    to: str
    """The name of the message."""
    verdict: Verdict


InboxMessage = Retry | Submit | Notify | Question | Leaving | Reply


def caller_fields(caller: Caller, *, is_sealed: bool = False) -> dict[str, Any]:
    """Return the data of a caller for a forwarded request. `is_sealed`: its headers travel sealed, beside the request."""
    headers = (
        {} if is_sealed else {name: value for name, value in caller.headers.items() if not is_secret(name)}
    )
    return {
        "owner": caller.key,
        "principal": caller.principal,
        "headers": headers,
        "conversation": caller.conversation,
    }


def encode_message(message: InboxMessage) -> bytes:
    """Encode a message. Returns no bytes if the principal has claims that JSON cannot hold."""
    try:
        return encode(message)
    except (TypeError, ValueError):
        return b""


def decode_message(payload: bytes) -> InboxMessage | None:
    """Decode a message; None if this release cannot read it."""
    try:
        return _message.decode(payload)
    except msgspec.DecodeError:
        return None


_message: Final[msgspec.json.Decoder[InboxMessage]] = msgspec.json.Decoder(InboxMessage)
