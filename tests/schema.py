"""The specification's JSON schemas as a judge of what a server sends.

`validate` judges one message; `Recorder` stands in front of an ASGI application, keeps every
message it sends together with the request that it answers, and judges them all.
"""

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from jsonschema import Draft7Validator, Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.protocols import Validator

SPEC: Final = Path(__file__).parents[2] / "shared" / "spec"
VERSIONS: Final = ("2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions with sessions."""
LATEST: Final = VERSIONS[-1]
MODERN: Final = "2026-07-28"
"""The revision without."""
SUSPENDABLE: Final = {"tools/call", "prompts/get", "resources/read"}
"""The only requests whose answer may ask for input."""
ERRORS: Final = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}
"""Errors that have a definition of their own."""
ASSUMED: Final = VERSIONS[0]
"""What a request without a version header speaks."""

Json = Any
Sender = Literal["server", "client"]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

FORMATS: Final = FormatChecker(formats=())


@FORMATS.checks("byte", raises=(binascii.Error, ValueError))
def _is_base64(value: object) -> bool:
    return not isinstance(value, str) or base64.b64decode(value, validate=True) is not None


@FORMATS.checks("uri")
def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S*$", value) is not None


class Spec:
    """One revision's schema: definitions by name, and by method."""

    def __init__(self, version: str) -> None:
        self._schema: Json = json.loads((SPEC / version / "schema.json").read_text(encoding="utf-8"))
        self._key = "$defs" if "$defs" in self._schema else "definitions"
        self.definitions: dict[str, Json] = self._schema[self._key]
        self.methods = {
            method: name
            for name, definition in self.definitions.items()
            if (method := definition.get("properties", {}).get("method", {}).get("const"))
        }
        self._validators: dict[str, Validator] = {}

    def check(self, definition: str, value: Json) -> None:
        """Fail with the path of the gravest violation."""
        if definition not in self._validators:
            kind = Draft202012Validator if self._key == "$defs" else Draft7Validator
            schema = {self._key: self.definitions, "$ref": f"#/{self._key}/{definition}"}
            self._validators[definition] = kind(schema, format_checker=FORMATS)
        found = best_match(self._validators[definition].iter_errors(value))
        if found is not None:
            raise AssertionError(f"{definition}{found.json_path.removeprefix('$')}: {found.message}")

    def first(self, *names: str) -> str:
        """Return the first of these names that this revision defines."""
        return next(name for name in names if name in self.definitions)

    def members(self, union: str) -> set[str]:
        """Return the names of a union's alternatives."""
        return {item["$ref"].rpartition("/")[2] for item in self.definitions[union]["anyOf"]}


@cache
def spec(version: str) -> Spec:
    """Return a revision's schema."""
    return Spec(version)


def validate(
    message: bytes | str | Json, version: str, *, answers: str | None = None, sender: Sender = "server"
) -> None:
    """Judge one message that `sender` sent in a session of this revision.

    A result is judged by the method of the request that it `answers`.

    Raises:
        AssertionError: names the definition and the path that are violated.
    """
    value = json.loads(message) if isinstance(message, (bytes, str)) else message
    assert isinstance(value, dict), f"not one message: {value!r}"
    if "method" in value:
        _check_call(spec(version), value, sender)
    elif "error" in value:
        _check_error(spec(version), value)
    else:
        assert answers is not None, f"a result can only be judged by the method it answers: {value!r}"
        _check_result(spec(version), value, answers)


def _check_call(rules: Spec, value: Json, sender: Sender) -> None:
    kind = "Request" if "id" in value else "Notification"
    rules.check(f"JSONRPC{kind}", value)
    definition = rules.methods.get(value["method"])
    assert definition is not None, f"{value['method']}: this revision has no such method"
    allowed = rules.members(f"{sender.title()}{kind}")
    assert definition in allowed, f"{value['method']}: not a {kind.lower()} that a {sender} sends"
    rules.check(definition, value)


def _check_error(rules: Spec, value: Json) -> None:
    assert "result" not in value, f"both a result and an error: {value!r}"
    # The transport's chapter of every revision allows errors that have no id; older schemas forgot them.
    rules.check(
        rules.first("JSONRPCErrorResponse", "JSONRPCError"), value if "id" in value else {"id": 0, **value}
    )
    special = ERRORS.get(value["error"]["code"])
    if special in rules.definitions:
        rules.check(special, value)


def _check_result(rules: Spec, value: Json, method: str) -> None:
    rules.check(rules.first("JSONRPCResultResponse", "JSONRPCResponse"), value)
    request = rules.methods.get(method)
    assert request is not None, f"{method}: this revision has no such method"
    result, definition = value["result"], f"{request.removesuffix('Request')}Result"
    if result.get("resultType") == "input_required":
        assert method in SUSPENDABLE, f"{method}: its answer cannot ask for input"
        assert result.keys() & {"inputRequests", "requestState"}, f"{method}: asks for input, but for none"
        definition = "InputRequiredResult"
    if definition not in rules.definitions:
        # The schema lets an empty result hold anything; the TypeScript SDK's parser does not.
        assert result.keys() <= {"_meta"}, f"{method}: an empty result holds {sorted(result)}"
        definition = "EmptyResult"
    rules.check(definition, result)
    if definition == "ListToolsResult":
        _check_tools(result["tools"])


def _check_tools(tools: list[Json]) -> None:
    for tool in tools:
        for key in ("inputSchema", "outputSchema"):
            try:
                Draft202012Validator.check_schema(tool.get(key, {}))
            except SchemaError as error:
                raise AssertionError(f"{tool['name']}.{key} is no JSON schema: {error.message}") from error


class Recorded(NamedTuple):
    """One message that was sent, in which session's revision, and the method of the request it answers."""

    message: Json
    version: str
    answers: str | None = None


class Recorder:
    """An ASGI application around another; it changes nothing and keeps what was sent.

    A response on a resumed stream is matched by its id, so a test that resumes must not have
    used that id again meanwhile for another method.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self.sent: list[Recorded] = []
        self._versions: dict[str, str] = {}
        self._methods: dict[tuple[str, str], str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tape = _Tape(self, scope)

        async def received() -> MutableMapping[str, Any]:
            event = await receive()
            tape.request += event.get("body", b"")
            return event

        async def sent(event: MutableMapping[str, Any]) -> None:
            tape.note(event)
            await send(event)

        await self._app(scope, received, sent)

    def validate_all(self) -> int:
        """Judge everything that was sent and return how many messages that were."""
        assert self.sent, "nothing was sent"
        for message, version, answers in self.sent:
            try:
                validate(message, version, answers=answers)
            except AssertionError as error:
                raise AssertionError(f"{version}, {answers or 'unasked'}: {error}\n{message}") from error
        return len(self.sent)

    def methods_seen(self) -> set[str]:
        """Return the methods that were called or answered, to see that a test reached them."""
        return {item.message.get("method") or item.answers or "" for item in self.sent} - {""}

    def note(self, tape: "_Tape", message: Json) -> None:
        """Keep one message, or each of a batch."""
        for item in message if isinstance(message, list) else [message]:
            answers = None
            if "method" not in item and "id" in item:
                answers = self._method_of(tape, item["id"])
            if answers == "initialize" and "result" in item:
                self._versions[tape.session] = item["result"]["protocolVersion"]
            self.sent.append(Recorded(item, self._versions.get(tape.session, tape.version), answers))

    def _method_of(self, tape: "_Tape", request_id: Json) -> str | None:
        own = {_key(call["id"]): call["method"] for call in tape.calls()}
        return own.get(_key(request_id)) or self._methods.get((tape.session, _key(request_id)))

    def asked(self, session: str, call: Json) -> None:
        """Remember what a request asked for: its answer may come on another connection."""
        self._methods[session, _key(call["id"])] = call["method"]


class _Tape:
    """One HTTP request and its response."""

    def __init__(self, recorder: Recorder, scope: Scope) -> None:
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        self._recorder = recorder
        self._response = Response()
        self.request = b""
        self.session = headers.get("mcp-session-id", "")
        self.version = headers.get("mcp-protocol-version", ASSUMED)

    def calls(self) -> Iterator[Json]:
        """Return the requests among what the client sent."""
        try:
            body = json.loads(self.request)
        except ValueError:
            return
        for item in body if isinstance(body, list) else [body]:
            if isinstance(item, dict) and "method" in item and "id" in item:
                yield item

    def note(self, event: Mapping[str, Any]) -> None:
        """Take one ASGI event of the response."""
        messages = self._response.feed(event)
        if event["type"] == "http.response.start":
            self.session = self._response.headers.get("mcp-session-id", self.session)
            for call in self.calls():
                self._recorder.asked(self.session, call)
        for message in messages:
            self._recorder.note(self, message)


class Response:
    """The events of one ASGI response, read as status, headers and messages."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._body = b""

    def feed(self, event: Mapping[str, Any]) -> list[Json]:
        """Take an event and return the messages that it completes: a JSON body, or server-sent events."""
        if event["type"] == "http.response.start":
            self.status = event["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in event["headers"]}
            return []
        self._body += event.get("body", b"")
        kind = self.headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            *blocks, self._body = self._body.split(b"\n\n")
            return [json.loads(data) for block in blocks if (data := _data(block))]
        if kind.startswith("application/json") and self._body and not event.get("more_body", False):
            return [json.loads(self._body)]
        return []


def _data(block: bytes) -> bytes:
    fields = [line.partition(b":") for line in block.splitlines()]
    return b"\n".join(value.removeprefix(b" ") for name, _, value in fields if name == b"data")


def _key(request_id: Json) -> str:
    """Return an id as it is written, because 1 and "1" are two."""
    return json.dumps(request_id)
