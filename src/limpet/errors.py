"""Every public exception of the package, and the JSON-RPC codes that they are sent with.

An exception is here if a user of the package or another layer catches it. Exceptions that one module raises and
catches stay in that module. `docs/errors.md` lists them with their causes.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
URL_ELICITATION_REQUIRED: Final = -32042
REQUEST_CANCELLED: Final = -32800
BUSY: Final = -31001
OUTCOME_UNKNOWN: Final = -31002
ANSWER_DROPPED: Final = (
    "The call was executed, but its answer was dropped: this client's answers take too much memory"
)
"""The text of an `OutcomeUnknown`."""
PARKED_GONE: Final = -31003
INSUFFICIENT_SCOPE: Final = -31004
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
NOT_EXECUTED: Final = ("limpet-refused", "not-executed")
"""The response header of a refusal that was sent before any part of its request ran. No proxy sends it."""


class LimpetError(Exception):
    """The base of all exceptions that this package raises on purpose."""


class ConfigError(LimpetError):
    """A setting is invalid. The message names it and a valid value."""


class Exposed(ConfigError):
    """An address can be reached from other machines, and the server lacks a setting that it needs for that."""

    def __init__(
        self, host: str, server: str, *, lacks_verifier: bool, lacks_host: bool, anonymous: bool = True
    ) -> None:
        """`server` names the server in the message. `anonymous`: clients without a verifier are possible at all."""
        verifier = "give it a verifier"
        if anonymous:
            verifier += ", or let everyone call with allow_anonymous=True (--allow-anonymous)"
        hosts = "name the hosts by which clients call it with allowed_hosts (--allow-host) or public_url (--public-url)"
        needs = [verifier] * lacks_verifier + [hosts] * lacks_host
        super().__init__(f"{server} at {host} can be reached from other machines: {'; and '.join(needs)}")
        self.host = host
        self.lacks_verifier = lacks_verifier
        self.lacks_host = lacks_host
        self.anonymous = anonymous
        self.port: int | None = None
        """The port of the socket, if it is bound."""


class LifespanEnded(LimpetError):
    """The lifespan of a server has ended by itself, so the server stops. The cause is the error of the lifespan.

    The text does not contain it: clients receive the text, and the log has the cause.
    """

    def __init__(self, server: str) -> None:
        super().__init__(f"the lifespan of {server} has ended, so this process cannot serve any more")


class WireError(LimpetError):
    """The bytes of the peer are not a JSON-RPC message. Carries the code and the id of the error answer."""

    def __init__(self, code: int, message: str, request_id: int | str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id


class LineTooLong(WireError):
    """A line of the peer was over the limit and was skipped. Its first and last bytes are kept."""

    def __init__(self, limit: int, head: bytes = b"", tail: bytes = b"", *, has_room: bool = True) -> None:
        """`has_room`: False if there was no memory for it, although it is not over the limit."""
        super().__init__(INVALID_REQUEST, f"Invalid request: a message is at most {limit} bytes")
        self.head = head
        self.tail = tail
        self.has_room = has_room


# Raised by authors: how a function ends a call


class ToolError(LimpetError):
    """Raised by a tool: the model receives its text in a result with `isError`."""


class WrongResult(LimpetError):
    """A function returned a value that is not of its declared type, or that has no JSON form.

    The text names the field and the type.

    `place` is the file and line of the function, for the log: it has no frame in the traceback.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place
        if place:
            self.add_note(f"The function is at {place}.")


class McpError(LimpetError):
    """Raised by a handler: the client receives a JSON-RPC error with this code, message and data.

    A client raises it when it receives such an error.
    """

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def joined(error: McpError, correlation: str) -> McpError:
    """Put a correlation id into the data of an error; return the error.

    Data of another form than an object stays as it is.
    """
    if correlation and (error.data is None or type(error.data) is dict):
        error.data = {**(error.data or {}), "correlation": correlation}
    return error


class UrlElicitationRequired(McpError):
    """Raised by a handler: the user must open these pages first. Takes one `UrlElicitation` for each page."""

    def __init__(
        self, *elicitations: object, message: str = "This request needs the user's attention"
    ) -> None:
        super().__init__(URL_ELICITATION_REQUIRED, message, {"elicitations": elicitations})


# Answers to a request that cannot be carried out


class InvalidParams(McpError):
    """The parameters of a request do not match its method."""

    def __init__(self, message: str, data: object = None) -> None:
        super().__init__(INVALID_PARAMS, message, data)


class InvalidArguments(InvalidParams):
    """The arguments of a tool or prompt do not match its signature; the message has one line for each problem."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class InvalidCursor(InvalidParams):
    """The cursor of a list request was not made by this server."""

    def __init__(self) -> None:
        super().__init__("Invalid cursor: leave it out to start from the first page")


class UnknownTask(InvalidParams):
    """This caller has no task with this id. Unknown, expired and foreign ids get the same answer."""

    def __init__(self) -> None:
        super().__init__("Unknown task: no task has this taskId, or the task is gone")


class MethodNotFound(McpError):
    """The server has no such method."""

    def __init__(self, method: str) -> None:
        super().__init__(METHOD_NOT_FOUND, f"Method not found: {method}")


class ResourceNotFound(McpError):
    """No resource has this URI."""

    def __init__(self, uri: str) -> None:
        super().__init__(RESOURCE_NOT_FOUND, f"Resource not found: {uri}", {"uri": uri})


class DuplicateId(McpError):
    """The request id is in flight in this session. The request is refused before any byte and any side effect."""

    def __init__(self) -> None:
        super().__init__(INVALID_REQUEST, "Invalid request: this id is already in flight in this session")


class KeyReused(McpError):
    """The idempotency key of a request was used for another one. The request is refused before any side effect."""

    def __init__(self) -> None:
        super().__init__(
            INVALID_REQUEST,
            "Invalid request: this idempotency key was used for a request with another method, name or arguments",
        )


class Cancelled(McpError):
    """The client cancelled the request; this error ends its stream."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(REQUEST_CANCELLED, f"Request cancelled: {reason}" if reason else "Request cancelled")


class Busy(McpError):
    """A limit of calls is reached; the same call may succeed after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(BUSY, message)
        self.retry_after = retry_after


class Withdrawn(Busy):
    """No connection waits for the answer of a request that has not started: its claim was given back."""

    def __init__(self) -> None:
        super().__init__(
            "Busy: the connection of this request ended before the request could start; nothing was executed"
        )


class TooMuchWork(Busy):
    """The messages of the calls in flight, of one session, one caller or all, use as much memory as they may."""

    def __init__(self) -> None:
        super().__init__("Busy: the calls in flight are too large together; try again shortly")


RateLimit = Literal["principal", "tool", "address"]


class RateLimited(Busy):
    """A rate of calls is reached, or too many requests of an address were refused; `data` has the limit and rate."""

    _TEXTS: Final[dict[RateLimit, str]] = {
        "principal": "this principal has reached its rate of",
        "tool": "this tool has reached its rate of",
        "address": "too many requests from this address were refused; its rate is",
    }

    def __init__(self, limit: RateLimit, rate: str, retry_after: int) -> None:
        super().__init__(f"Busy: {self._TEXTS[limit]} {rate}; try again in {retry_after} s", retry_after)
        self.limit: RateLimit = limit
        self.data: object = {"limit": limit, "rate": rate}


class StoreBusy(Busy):
    """The store does not work now, and a method of the server needs it, such as `tasks/get`; over HTTP 503."""

    def __init__(self) -> None:
        super().__init__("Busy: the store does not work now; try again shortly", retry_after=2)


class Stopping(Busy):
    """The server is stopping and begins no new work; over HTTP 503. Nothing of the request ran."""

    def __init__(self, reason: str = "") -> None:
        """`reason`: why it stops, if it has failed."""
        reason = reason or "this server is stopping"
        super().__init__(f"Busy: {reason}. This request was not executed; send it again")


class UpstreamUnavailable(Busy):
    """A server in front of another one cannot reach it, or has its limit of connections or children; over HTTP 503."""


class UpstreamFailed(McpError):
    """A server in front of another one got no usable response from it, or was refused by it."""

    def __init__(self, message: str) -> None:
        super().__init__(INTERNAL_ERROR, message)


class InsufficientScope(McpError):
    """The caller's token lacks a scope that the component needs. Nothing ran; over HTTP 403 with a challenge.

    `scopes` are all scopes that a new token should have: those that the component needs, and those of the present
    token.
    """

    def __init__(self, scopes: tuple[str, ...], request_id: int | str | None = None) -> None:
        named = " ".join(scopes)
        super().__init__(
            INSUFFICIENT_SCOPE,
            f"Insufficient scope: this needs a token with the scopes {named}",
            {"error": "insufficient_scope", "scope": named},
        )
        self.scopes = scopes
        self.request_id = request_id


class OutcomeUnknown(McpError):
    """The process that ran the call has died: the call may or may not have had its effect."""

    def __init__(self, message: str = "The server lost this call; its outcome is unknown") -> None:
        super().__init__(OUTCOME_UNKNOWN, message)


# Answers that only protocol 2026-07-28 has


class HeaderMismatch(McpError):
    """A header is missing, is malformed, or differs from the body."""

    def __init__(self, message: str) -> None:
        super().__init__(HEADER_MISMATCH, f"Header mismatch: {message}")


class MissingCapability(McpError):
    """The request needs a capability that its client did not declare.

    The message names the capability: many clients show the message and not `data`.
    """

    def __init__(self, required: dict[str, Any], why: str = "") -> None:
        named = why or ", ".join(_paths(required))
        super().__init__(
            MISSING_CAPABILITY,
            f"Missing required client capability: {named}",
            {"requiredCapabilities": required},
        )


def _paths(required: dict[str, Any]) -> Iterator[str]:
    """Yield each capability by its path, such as `sampling.tools`."""
    for name, parts in required.items():
        if parts:
            yield from (f"{name}.{path}" for path in _paths(parts))
        else:
            yield name


class UnsupportedVersion(McpError):
    """The server does not serve this protocol version, or not to this client."""

    def __init__(self, requested: str, supported: tuple[str, ...]) -> None:
        data = {"supported": list(supported), "requested": requested[:100]}
        named = ", ".join(supported)
        super().__init__(UNSUPPORTED_VERSION, f"Unsupported protocol version; supported: {named}", data)


class ParkedGone(McpError):
    """No call waits here under this `requestState`. Invalid, expired and foreign states get the same text."""

    def __init__(self) -> None:
        super().__init__(
            PARKED_GONE,
            "Invalid or expired requestState: this call is not waiting here; send it again from the start",
        )


class Unreached(ParkedGone):
    """The replica of a parked call or conversation has no lease or is stopping: nothing of the request ran there."""


# Asks: requests from the server to the client


class AskError(LimpetError):
    """A request to the client got no result, or its result is malformed."""


class AskRefused(AskError):
    """The client answered the ask with an error."""

    def __init__(self, method: str, code: int, message: str, data: object = None) -> None:
        super().__init__(f"the client refused {method}: {message} ({code})")
        self.method = method
        self.code = code
        self.message = message
        self.data = data


class AskTimeout(AskError):
    """The client did not answer before the deadline of the ask."""


class CallEnded(AskError):
    """The call that asked has ended before the client answered."""

    def __init__(self, method: str) -> None:
        super().__init__(f"the call that asked has ended before the client answered {method}")


class BackPressureError(AskError):
    """The open and the queued asks of the session are at their limits."""


class CapabilityMissing(AskError):
    """The client did not declare the capability that this ask needs. `required` is the missing declaration.

    If a tool does not catch it, its call fails in a session; a client of 2026-07-28 receives error −32021.
    """

    def __init__(self, message: str, required: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.required: dict[str, Any] = required or {}


class NoBackChannel(AskError):
    """This connection cannot carry a request to the client (always-JSON or stateless mode)."""


# State, sessions and streams


class StateError(LimpetError):
    """The state was not changed: a limit is reached, or another call changed the field at the same time."""


class NoSession(StateError):
    """The operation needs a session, and clients of protocol 2026-07-28 have none."""

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"{operation} needs a session, and this client's protocol has none; "
            'keep it by principal with Server(state="principal"), or under a handle: ctx.new_handle() and '
            "ctx.state_for(handle)"
        )


class HandleNotFound(StateError):
    """This caller has no state under this handle. Unknown, expired and foreign handles get the same text."""

    def __init__(self) -> None:
        super().__init__("not found: no state is kept under this handle; begin with a new one")


class TooMuchKept(StateError):
    """One principal may not keep so much."""

    def __init__(self, kept: int, total: int, name: str) -> None:
        super().__init__(
            f"everything that one principal keeps is limited to {total} bytes; {name!r} would exceed it"
        )
        self.kept: int = kept
        """What its session or area would keep."""


class SessionGone(LimpetError):
    """The session was closed."""


class TooManySessions(LimpetError):
    """The store has no room for another session."""


class Unresumable(LimpetError):
    """The position is unknown, forged, or of another session."""


class Unbegun(Unresumable):
    """The exchange of the stream is in flight and has sent no message, so its stream has not started."""


class ParkedElsewhere(LimpetError):
    """The call is parked at another replica."""

    def __init__(self, replica: str) -> None:
        super().__init__(replica)
        self.replica = replica


# Stores


class StoreError(LimpetError):
    """The store refused an operation or cannot be reached."""


class Fenced(StoreError):
    """Another replica has ended this exchange; the writer must stop."""


class StreamClosed(StoreError):
    """The stream already has its terminal message."""


class StoreUnavailable(StoreError):
    """The store is unreachable, full or locked. Clients receive 503 with Retry-After; the store recovers without help.

    If the connection was lost, the last command may or may not have been executed.
    """

    def __init__(self, message: str, retry_after: int = 2) -> None:
        super().__init__(message)
        self.retry_after = retry_after


# Clients


class LinkError(LimpetError):
    """The connection to a server failed. The subclass says whether the server may have executed the request."""


class NotSent(LinkError):
    """The server did not execute the request, so the client may send it again.

    The request was not sent, or the server refused it before it ran. `retry_after` is the server's Retry-After.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Broken(LinkError):
    """The connection broke after the request was sent: the server may or may not have executed it."""


class ClientError(LimpetError):
    """A call of a client ended without a usable answer."""


class CallTimeout(ClientError, TimeoutError):
    """The server did not answer within the caller's timeout; the request was cancelled."""


class HttpRefused(ClientError):
    """The server answered with an HTTP status and without a JSON-RPC answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unauthorized(HttpRefused):
    """The server requires credentials, or other ones."""


class AuthorizationFailed(Unauthorized):
    """No token was obtained. `error` is the OAuth error code of a refusal, else empty."""

    def __init__(self, message: str, *, error: str = "") -> None:
        super().__init__(401, message)
        self.error = error


class SignInRequired(AuthorizationFailed):
    """A user must agree at `url` before there is a token. The request may be sent again afterwards."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"sign in to the server behind this one first: open {url} in your browser, then try again"
        )
        self.url = url


class VersionRefused(ClientError):
    """Client and server have no protocol version in common."""


class BadAnswer(ClientError):
    """The server's answer has the wrong shape for its method."""


class InputRefused(ClientError):
    """The server asks for input that no handler of this client provides."""


class TooManyRounds(ClientError):
    """The server asked for input more often than the client's limit."""
