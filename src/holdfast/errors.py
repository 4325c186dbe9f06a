"""Every exception of the package, and the JSON-RPC codes they travel under.

HoldfastError
├── ConfigError              a setting cannot work; says which and what would
├── McpError                 becomes a JSON-RPC error answer: code, message, data
│   ├── InvalidParams        −32602
│   │   ├── InvalidArguments the arguments do not fit the tool's or prompt's signature
│   │   └── InvalidCursor    no page of ours ended there
│   ├── MethodNotFound       −32601
│   ├── ResourceNotFound     −32002
│   ├── UrlElicitationRequired  −32042, the user must open a page first
│   ├── Cancelled            −32800, the exchange was cancelled by its client
│   ├── Busy                 −31001, a limit of calls is reached
│   └── OutcomeUnknown       −31002, whoever ran the call is gone
├── WireError                the peer's bytes are not a message
├── ToolError                an author's way to say "the tool failed": an isError result
├── AskError                 a request to the client got no answer
│   ├── AskRefused           the client answered with an error
│   ├── AskTimeout           no answer before the deadline
│   ├── BackPressureError    too many asks outstanding and waiting
│   ├── CapabilityMissing    the client did not declare what the ask needs
│   └── NoBackChannel        this connection cannot carry an ask
├── LinkError                a client's connection to its server failed
│   ├── NotSent              the request was not executed: it never left, or was turned away at the door
│   └── Broken               the connection broke after the request had left
├── ClientError              a client's call ended without an answer, or its answer cannot be used
│   ├── CallTimeout          no answer in the time the caller gave
│   ├── HttpRefused          the server answered with an HTTP status that is no answer
│   │   └── Unauthorized     401 or 403, and the authorizer had nothing better to offer
│   │       └── AuthorizationFailed  no token could be had: refused, or nobody to be trusted with the question
│   ├── VersionRefused       no protocol version in common
│   ├── BadAnswer            the answer does not have the shape its method gives it
│   ├── InputRefused         the server wants input that nobody here can give
│   └── TooManyRounds        the server kept asking for input past the bound
├── StateError               session state: conflict, or over its limit
│   ├── NoSession            there is none in protocol 2026-07-28
│   └── HandleNotFound       no state under this handle for this caller
├── SessionGone              the session was closed meanwhile
└── StoreError               the store refused or cannot be reached
    ├── Fenced               somebody else has ended this exchange
    ├── StreamClosed         the stream already has its terminal message
    └── StoreUnavailable     the store cannot work now; nothing was done, and it comes back by itself
"""

from typing import Any, Final

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
NOT_EXECUTED: Final = ("holdfast-refused", "not-executed")
"""The response header of a refusal that was made before anything of its request ran. No proxy sends it by itself."""


class HoldfastError(Exception):
    """Anything this package raises on purpose."""


class ConfigError(HoldfastError):
    """A setting cannot work. The message names it and what would be right."""


class McpError(HoldfastError):
    """An answer to the peer: raised in a handler, it becomes a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class InvalidParams(McpError):
    """The request's parameters do not fit its method."""

    def __init__(self, message: str, data: object = None) -> None:
        super().__init__(INVALID_PARAMS, message, data)


class InvalidArguments(InvalidParams):
    """A tool's or prompt's arguments do not fit; the message lists each problem, one a line."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class InvalidCursor(InvalidParams):
    """A cursor that this server did not make."""

    def __init__(self) -> None:
        super().__init__("Invalid cursor: leave it out to start from the first page")


class MethodNotFound(McpError):
    """Nobody here answers this method."""

    def __init__(self, method: str) -> None:
        super().__init__(METHOD_NOT_FOUND, f"Method not found: {method}")


class ResourceNotFound(McpError):
    """No resource has this URI."""

    def __init__(self, uri: str) -> None:
        super().__init__(RESOURCE_NOT_FOUND, f"Resource not found: {uri}", {"uri": uri})


class UrlElicitationRequired(McpError):
    """The request works only after the user has been to these pages (each a `UrlElicitation`)."""

    def __init__(
        self, *elicitations: object, message: str = "This request needs the user's attention"
    ) -> None:
        super().__init__(URL_ELICITATION_REQUIRED, message, {"elicitations": elicitations})


class Cancelled(McpError):
    """The client cancelled the exchange; this ends its stream."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(REQUEST_CANCELLED, f"Request cancelled: {reason}" if reason else "Request cancelled")


class Busy(McpError):
    """A limit of calls is reached; the same call may work a little later."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(BUSY, message)
        self.retry_after = retry_after


class OutcomeUnknown(McpError):
    """The process that ran the call is gone: it may or may not have had its effect."""

    def __init__(self, message: str = "The server lost this call; its outcome is unknown") -> None:
        super().__init__(OUTCOME_UNKNOWN, message)


class WireError(HoldfastError):
    """Bytes from the peer that are not a JSON-RPC message; carries the answer's code."""

    def __init__(self, code: int, message: str, request_id: int | str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id


class ToolError(HoldfastError):
    """Raised by a tool: its text reaches the model as an isError result."""


class AskError(HoldfastError):
    """A request to the client that got no result."""


class AskRefused(AskError):
    """The client answered the ask with an error."""

    def __init__(self, method: str, code: int, message: str, data: object = None) -> None:
        super().__init__(f"the client refused {method}: {message} ({code})")
        self.method = method
        self.code = code
        self.message = message
        self.data = data


class AskTimeout(AskError):
    """The client did not answer before the ask's deadline."""


class BackPressureError(AskError):
    """The session's asks, outstanding and waiting, are at their limit."""


class CapabilityMissing(AskError):
    """The client did not declare the capability this ask needs; `required` is what it should have declared.

    Uncaught, it fails a tool's call in a session; a client of 2026-07-28 is answered with error −32021.
    """

    def __init__(self, message: str, required: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.required: dict[str, Any] = required or {}


class NoBackChannel(AskError):
    """Nothing here can carry a request to the client (always-JSON or stateless mode)."""


class LinkError(HoldfastError):
    """The connection to a server failed; which kind says whether the request may have been executed."""


class NotSent(LinkError):
    """The request was certainly not executed, so it may be sent again.

    It never left, or was refused before anybody looked at it. `retry_after` is what the server asked for.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Broken(LinkError):
    """The connection broke after the request had left: it may or may not have been executed."""


class ClientError(HoldfastError):
    """A client's call that ended without a usable answer."""


class CallTimeout(ClientError, TimeoutError):
    """The server did not answer in the time the caller gave; the request was cancelled."""


class HttpRefused(ClientError):
    """The server answered with a status that carries no JSON-RPC answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unauthorized(HttpRefused):
    """The server wants credentials, or better ones."""


class AuthorizationFailed(Unauthorized):
    """No token could be had. `error` is the OAuth code of a refusal; empty where nobody was asked, or answered badly."""

    def __init__(self, message: str, *, error: str = "") -> None:
        super().__init__(401, message)
        self.error = error


class VersionRefused(ClientError):
    """Client and server have no protocol version in common."""


class BadAnswer(ClientError):
    """The server's answer does not have the shape that its method gives it."""


class InputRefused(ClientError):
    """The server wants input that no handler of this client gives."""


class TooManyRounds(ClientError):
    """The server asked for input again and again, past the client's bound."""


class StateError(HoldfastError):
    """A change of session state could not be made; nothing was changed."""


class NoSession(StateError):
    """This needs a session, and clients of protocol 2026-07-28 have none."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} needs a session, and this client's protocol has none; "
            'keep it by principal with Server(state="principal"), or under a handle: ctx.new_handle() and '
            "ctx.state_for(handle)"
        )


class HandleNotFound(StateError):
    """No state is kept under this handle for this caller: unknown, expired and somebody else's are the same."""

    def __init__(self) -> None:
        super().__init__("not found: no state is kept under this handle; begin with a new one")


class SessionGone(HoldfastError):
    """The session was closed while something still wanted to use it."""


class StoreError(HoldfastError):
    """The store refused an operation or cannot be reached."""


class Fenced(StoreError):
    """Somebody else has ended this exchange; whoever reads this must stop writing."""


class StreamClosed(StoreError):
    """The stream already carries its terminal message."""


class StoreUnavailable(StoreError):
    """The store is unreachable, full or locked. Fail closed: 503 with Retry-After; it comes back by itself.

    Where the connection was lost, whether the last command counted is not known.
    """

    def __init__(self, message: str, retry_after: int = 2) -> None:
        super().__init__(message)
        self.retry_after = retry_after
