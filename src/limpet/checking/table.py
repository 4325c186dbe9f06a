"""The table of probes: the order in which they run, the rule of the specification behind each, and the remedy."""

from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from limpet.checking.ground import Ground
from limpet.checking.probes import eras, inputs, path, promises, requests, sessionless, streams
from limpet.checking.probes.stalled import stalled
from limpet.protocol.idempotency import KEYS_EXTENSION

OLD: Final = "2025-11-25"
NEW: Final = "2026-07-28"


class Probe(Struct, frozen=True):
    """One probe."""

    name: str
    title: str
    run: Callable[[Ground], Awaitable[str]]
    """Returns the result as text; raises `ProbeFailed` or `NotApplicable`."""
    specification: str
    """The revision, the section and the rule."""
    remedy: str
    is_slow: bool = False
    """Runs only if the user asks for slow probes."""
    is_alone: bool = False
    """Runs while no other probe runs: it measures time, or loads the server."""


REACHABLE: Final = Probe(
    "reachable",
    "the server answers",
    eras.reachable,
    f"{OLD}, Transports, Streamable HTTP: the server has one endpoint that accepts POST. It answers initialize, or "
    f"server/discover ({NEW}).",
    "Check the URL with its path, the server's log, and the token (--token-file, --token-env, --header).",
)
"""It runs first, also if others are chosen: without it, no other probe can run."""
PROBES: Final[tuple[Probe, ...]] = (
    REACHABLE,
    Probe(
        "handshake",
        "initialize opens a session",
        eras.handshake,
        f"{OLD}, Lifecycle, Initialization: the server must answer with its capabilities and information. "
        "Transports, Session Management: a session id has only visible ASCII characters.",
        "Return protocolVersion, capabilities and serverInfo, and make the session id of letters, digits and '-'.",
    ),
    Probe(
        "authorization",
        "a wrong token is refused",
        eras.authorization,
        f"{OLD}, Authorization, Token Handling: the server must validate tokens; an invalid one must get 401. Authorization Server "
        "Location: the resource metadata must name an authorization server.",
        "Verify each token, answer 401 with WWW-Authenticate, and serve the document that it names.",
    ),
    Probe(
        "negotiation",
        "clients of both eras find their version",
        eras.negotiation,
        f"{OLD}, Lifecycle, Version Negotiation: for an unknown version the server answers with another one that it "
        f"supports. {NEW}: a client that speaks both eras may send server/discover first.",
        "Answer an unknown method with the error -32601 at once, and an unknown version with one that you support.",
    ),
    Probe(
        "parallel",
        "parallel requests get their own answers",
        requests.parallel,
        f"{OLD}, Transports, Sending Messages to the Server: each POST gets a response to its own request.",
        "Do not keep the state of a session in one record that each request reads and writes as a whole. "
        "`limpet serve URL --concurrency 1` in front sends such a server one request at a time.",
        is_alone=True,
    ),
    Probe(
        "duplicate-ids",
        "a duplicate id disturbs no other request",
        requests.duplicate_ids,
        f"{OLD}, Base Protocol, Requests: an id must not be used twice in a session; the duty of the server is not "
        "said. JSON-RPC 2.0: a response belongs to its request.",
        "Find the connection of an answer by the POST, not by the id, or refuse an id in flight with 400 and -32600. "
        "`limpet serve URL` in front of the server does it.",
        is_alone=True,
    ),
    Probe(
        "reused-id",
        "an id may be used again after its answer",
        requests.reused_id,
        f"{OLD}, Base Protocol, Requests: clients must not do it, so a server may refuse it, but must answer. {NEW}, Base "
        "Protocol, Requests: an id must differ only from those without an answer yet.",
        "Forget an id when its request is answered.",
    ),
    Probe(
        "id-types",
        "ids come back as they were sent",
        requests.id_types,
        f"{OLD}, Base Protocol, Requests: an id is a text or an integer. JSON-RPC 2.0, Response object: the id of "
        "the answer must be the same value.",
        'Keep the type of an id: 7 and "7" are two ids. Do not use the id as a key in the form of a text.',
    ),
    Probe(
        "bad-ids",
        "invalid ids get no result",
        requests.bad_ids,
        f"{OLD}, Base Protocol, Requests: an id is a text or an integer, and must not be null. JSON-RPC 2.0, Error object: "
        "-32600 is the error for an invalid request.",
        "Refuse other ids with 400 and the error -32600.",
    ),
    Probe(
        "resume",
        "a cut stream is resumed without loss",
        streams.resume,
        f"{OLD}, Transports, Resumability and Redelivery: the server may replay the messages after the event of "
        "Last-Event-ID, on the stream that was cut. An event id invites the client to connect again.",
        "Store each event before it is sent, and deliver stored and new events by one cursor.",
    ),
    Probe(
        "foreign-event",
        "an event id is valid only in its session",
        streams.foreign_event,
        f"{OLD}, Transports, Resumability and Redelivery: event ids are unique in a session, and messages of another "
        "stream must not be replayed. Session Management: 404 means that the session has ended.",
        "Look an event id up in the log of its own session, and refuse another one with 400.",
    ),
    Probe(
        "cuts",
        "a session survives cut connections",
        streams.cuts,
        f"{OLD}, Transports, Sending Messages to the Server: a disconnection should not be interpreted as the client "
        "cancelling its request.",
        "End a reader when its connection breaks, not the session.",
    ),
    Probe(
        "stalled",
        "a client that does not read delays only itself",
        stalled,
        f"{OLD}, Transports, Multiple Connections: a client may have several streams open at the same time.",
        "Give each response a buffer of its own with a limit; no common loop may wait for one reader.",
        is_alone=True,
    ),
    Probe(
        "second-stream",
        "a GET stream can be opened again",
        streams.second_stream,
        f"{OLD}, Transports, Multiple Connections: a client may have several streams open at the same time. Listening for "
        "Messages from the Server: a GET must get an event stream, or 405.",
        "Accept the new GET stream and send further messages on it. A cut is often noticed only by the client.",
    ),
    Probe(
        "cancel",
        "a cancelled call leaves the session in order",
        requests.cancel,
        f"{OLD}, Cancellation, Behavior Requirements: the receiver should stop and send no response; it may ignore "
        "unknown ids.",
        "Accept notifications/cancelled with 202, ignore unknown ids, and end the stream of the call.",
    ),
    Probe(
        "bad-bodies",
        "invalid messages are refused",
        inputs.bodies,
        f"{OLD}, Transports, Sending Messages to the Server: input that the server cannot accept gets an error "
        "status. JSON-RPC 2.0, Error object: -32700 and -32600. RFC 9110, 15.6: a status of 500 says that the server erred.",
        "Catch errors of decoding before the message is handled, and answer 400.",
    ),
    Probe(
        "unknown-method",
        "an unknown method gets an error",
        inputs.unknown_method,
        "JSON-RPC 2.0, Error object: -32601 is the error for a method that does not exist. "
        f"{NEW}, Transports, Protocol Version Header: the status must be 404.",
        f"Answer unknown requests with the error -32601, in {NEW} with the status 404.",
    ),
    Probe(
        "unknown-tool",
        "an unknown tool gets an error",
        inputs.unknown_tool,
        f"{OLD}, Tools, Error Handling: an unknown tool is a protocol error.",
        "Answer with the error -32602, or with a result that has isError.",
    ),
    Probe(
        "notification",
        "a notification gets 202",
        inputs.notification,
        f"{OLD}, Transports, Sending Messages to the Server: an accepted notification must get 202 and no body.",
        "Answer 202 without a body.",
    ),
    Probe(
        "session-header",
        "an unknown session id gets 404",
        inputs.session_header,
        f"{OLD}, Transports, Session Management: a session that has ended must get 404, also one that ended with a restart "
        "of the server; a request without an id should get 400.",
        "Answer 404 for session ids that you do not know. Other statuses do not make a client open a new session.",
    ),
    Probe(
        "version-header",
        "an unknown MCP-Protocol-Version gets 400",
        inputs.version_header,
        f"{OLD}, Transports, Protocol Version Header: an invalid or unsupported version must get 400.",
        "Compare the header with the versions that you support.",
    ),
    Probe(
        "origin",
        "a foreign Origin is refused",
        inputs.origin,
        f"{OLD}, Transports, Security Warning: the server must validate Origin, and must answer 403 if it is invalid.",
        "Compare Origin with a list. Without this, a web page can use a server on the machine of its visitor.",
    ),
    Probe(
        "content-type",
        "pages of other sites cannot send messages as text",
        inputs.content_type,
        f"{OLD}, Transports, Security Warning: the server must validate Origin. A browser sends text/plain to another site "
        "without asking it first.",
        "Compare Origin with a list, or refuse a Content-Type other than application/json with 415.",
    ),
    Probe(
        "deleted",
        "a deleted session is gone",
        inputs.deleted,
        f"{OLD}, Transports, Session Management: a client should delete its session; a server may answer 405. A "
        "session that has ended must get 404.",
        "Remove the session on DELETE, and answer 404 afterwards.",
    ),
    Probe(
        "sessionless",
        "2026-07-28 works without a session",
        sessionless.requests,
        f"{NEW}, Base Protocol, General fields: each request carries its version and its client in _meta, and needs no session. Result Responses: a result must have a resultType.",
        "Serve each request on its own, and give each result its resultType.",
    ),
    Probe(
        "sessionless-headers",
        "headers of 2026-07-28 agree with the body",
        sessionless.headers,
        f"{NEW}, Transports, Server Validation: a missing or different header must get 400 and the error -32020.",
        "Compare Mcp-Method, Mcp-Name and MCP-Protocol-Version with the body before the request is handled.",
    ),
    Probe(
        "sessionless-version",
        "an unknown version of a request is named",
        sessionless.version,
        f"{NEW}, Transports, Protocol Version Header: an unsupported version must get 400 and the error -32022 with the supported ones.",
        "Answer with the error -32022 and data.supported.",
    ),
    Probe(
        "sessionless-shared-ids",
        "an id of another client disturbs no request",
        requests.shared_ids,
        f"{NEW}, Base Protocol, Statelessness: each request is processed independently. Requests: an id must differ only "
        "from those of the same sender.",
        "Find the connection of an answer by the POST, not by the id: without sessions, ids of different clients are equal.",
        is_alone=True,
    ),
    Probe(
        "sessionless-cuts",
        "a cut response disturbs no other request",
        sessionless.cuts,
        f"{NEW}, Transports, Cancellation: closing a response stream cancels that request.",
        "Cancel only the request whose response was closed.",
        is_alone=True,
    ),
    Probe(
        "sessionless-cancel",
        "a closed response ends its request",
        sessionless.cancel,
        f"{NEW}, Transports, Cancellation: closing the response stream is the cancellation; the server must not send any "
        "further messages for the request. Receiving Messages: streams cannot be resumed.",
        "Cancel the request when its response is closed, and do not keep its messages.",
    ),
    Probe(
        "handed-over",
        "the result of a slow call is collected",
        promises.handed_over,
        f"{OLD}, Lifecycle, Timeouts: a client should stop waiting for a request after some time. A server that answers a slow call with "
        "a ticket promises its result, also if the session has ended.",
        "Keep the call and its result apart from the connection and the session (`limpet serve --hand-over 45`).",
    ),
    Probe(
        "idempotency-keys",
        "a call that is sent again with its key runs once",
        promises.idempotency_keys,
        f"{NEW}, Transports, Receiving Messages: streams cannot be resumed, so a client sends a call again. A server that declares "
        f"the extension {KEYS_EXTENSION} promises to run it once.",
        "Claim the key before the call runs, keep its answer, and refuse the key for another request with the error -32600.",
    ),
    Probe(
        "buffering",
        "events arrive at once",
        path.buffering,
        f"{OLD}, Transports, Listening for Messages from the Server: messages travel on an open stream. {NEW}, Transports, "
        "Receiving Messages: the server should send X-Accel-Buffering: no, so that proxies pass events on at once.",
        "Turn buffering and compression of text/event-stream off in the proxy (nginx: proxy_buffering off).",
        is_alone=True,
    ),
    Probe(
        "replicas",
        "every replica knows the session",
        path.replicas,
        f"{OLD}, Transports, Session Management: a session id is valid until the session ends.",
        "Share the sessions (`limpet serve --store redis://…`), or let the balancer send a session to one replica.",
    ),
    Probe(
        "idle",
        "an idle stream stays open",
        path.idle,
        f"{OLD}, Transports, Listening for Messages from the Server: the server may end a stream at any time; the "
        f"client then connects again. {NEW}, Transports, Receiving Messages: servers are encouraged to send comments.",
        "Send a comment every 15 s, and give the proxy a longer time limit for silent connections.",
        is_slow=True,
    ),
)
