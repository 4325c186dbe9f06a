"""The official types as a check of the messages that a server sends.

`validate` judges one message; `Recorder` stands in front of an ASGI application, keeps every
message it sends together with the request that it answers, and judges them all.

Three judges decide together. `mcp-types`, the official package, knows the methods of each revision and the
shape of each message; it is asked to be strict about types. It passes over members that it does not know, so
`_Members` compares the members that it has read with those that were sent and refuses the others. And it checks every
revision with sessions against 2025-11-25, so `tests/revisions.py` names later members.
"""

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from functools import cache
from types import UnionType
from typing import Any, Final, Literal, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from mcp_types import MissingRequiredClientCapabilityErrorData, UnsupportedProtocolVersionErrorData, methods
from pydantic import BaseModel, TypeAdapter, ValidationError

from tests.revisions import ALL, EXTENSIONS, SINGLE, form_field, later

VERSIONS: Final = ("2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions with sessions."""
LATEST: Final = VERSIONS[-1]
MODERN: Final = "2026-07-28"
"""The revision without."""
ERROR_DATA: Final[dict[int, type[BaseModel]]] = {
    -32021: MissingRequiredClientCapabilityErrorData,
    -32022: UnsupportedProtocolVersionErrorData,
}
"""The errors of 2026-07-28 that have data of their own."""
ASSUMED: Final = VERSIONS[0]
"""The revision of a request without a version header."""

Json = Any
Sender = Literal["server", "client"]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Type = type[BaseModel] | UnionType

CALLS: Final[dict[tuple[Sender, str], Mapping[tuple[str, str], type[BaseModel]]]] = {
    ("server", "request"): methods.SERVER_REQUESTS,
    ("server", "notification"): methods.SERVER_NOTIFICATIONS,
    ("client", "request"): methods.CLIENT_REQUESTS,
    ("client", "notification"): methods.CLIENT_NOTIFICATIONS,
}
RESULTS: Final[dict[Sender, Mapping[tuple[str, str], Type]]] = {
    "server": methods.SERVER_RESULTS,
    "client": methods.CLIENT_RESULTS,
}


def _is_base64(value: object) -> bool:
    try:
        return not isinstance(value, str) or base64.b64decode(value, validate=True) is not None
    except (binascii.Error, ValueError):
        return False


def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S*$", value) is not None


FORMATS: Final[dict[str, Callable[[object], bool]]] = {
    "BlobResourceContents.blob": _is_base64,
    "ImageContent.data": _is_base64,
    "AudioContent.data": _is_base64,
    "Icon.src": _is_uri,
    "Implementation.websiteUrl": _is_uri,
    "ElicitRequestURLParams.url": _is_uri,
    **{
        f"{kind}.uri": _is_uri
        for kind in (
            "BlobResourceContents",
            "ReadResourceRequestParams",
            "Resource",
            "ResourceLink",
            "ResourceUpdatedNotificationParams",
            "Root",
            "SubscribeRequestParams",
            "TextResourceContents",
            "UnsubscribeRequestParams",
        )
    },
}
"""Members that hold more than any text."""


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _read(kind: Type, value: Json, version: str) -> None:
    """Fail unless the value is of this type, in this revision, with no member besides."""
    try:
        read = _adapter(kind).validate_json(json.dumps(value), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        faults = "; ".join(f"{_path(fault['loc'])}: {fault['msg']}" for fault in error.errors())
        raise AssertionError(f"{getattr(kind, '__name__', kind)}{faults}") from error
    _Members(version).check(value, read, type(read).__name__)


def _path(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


class _Members:
    """Compares the sent members with those that were read, and refuses members that a revision does not have."""

    def __init__(self, version: str) -> None:
        self._version = version

    def check(self, sent: Json, read: object, path: str) -> None:
        """Fail with the path of the first member that is unknown, or that came later."""
        if isinstance(read, BaseModel):
            self._check_object(sent, read, path)
        elif isinstance(read, dict) and isinstance(sent, dict):
            for key, item in sent.items():
                self.check(item, read[key], f"{path}.{key}")
        elif isinstance(read, list) and isinstance(sent, list):
            for place, (item, part) in enumerate(zip(sent, read, strict=True)):
                self.check(item, part, f"{path}[{place}]")

    def _check_object(self, sent: dict[str, Json], read: BaseModel, path: str) -> None:
        kind = type(read).__name__
        unknown = later(self._version, kind)
        assert ALL.isdisjoint(unknown), f"{path}: {kind} came after {self._version}"
        members = {field.alias or name: name for name, field in type(read).model_fields.items()}
        for key, value in sent.items():
            assert key not in unknown, f"{path}.{key}: this member of {kind} came after {self._version}"
            if key not in members:
                is_open = type(read).model_config.get("extra") == "allow" or key in EXTENSIONS.get(kind, ())
                assert is_open, f"{path}: {kind} has no member {key!r}"
                continue
            is_fit = FORMATS.get(f"{kind}.{key}")
            assert is_fit is None or is_fit(value), f"{path}.{key}: {value!r} has the wrong format"
            if self._version < LATEST and SINGLE.get(kind) == key:
                assert not isinstance(value, list), f"{path}.{key}: a list came after {self._version}"
            self.check(value, getattr(read, members[key]), f"{path}.{key}")
        if kind == "RequestedSchema":
            self._check_form(sent["properties"], path)

    def _check_form(self, fields: dict[str, Json], path: str) -> None:
        for name, field in fields.items():
            found = best_match(Draft202012Validator(form_field(self._version)).iter_errors(field))
            assert found is None, f"{path}.properties.{name}: {field!r} is no field of a form: {found}"


def validate(
    message: bytes | str | Json, version: str, *, answers: str | None = None, sender: Sender = "server"
) -> None:
    """Judge one message that `sender` sent in a session of this revision.

    A result is judged by the method of the request that it `answers`.

    Raises:
        AssertionError: names the type and the path that are violated.
    """
    value = json.loads(message) if isinstance(message, (bytes, str)) else message
    assert isinstance(value, dict), f"not one message: {value!r}"
    assert value.get("jsonrpc") == "2.0", f"not JSON-RPC, its jsonrpc is not 2.0: {value!r}"
    if "id" in value:
        assert type(value["id"]) in (int, str), f"no id of a request: {value['id']!r}"
    if "method" in value:
        _check_call(value, version, sender)
    elif "error" in value:
        _check_error(value, version)
    else:
        assert answers is not None, f"a result can only be judged by the method it answers: {value!r}"
        assert value.keys() == {"jsonrpc", "id", "result"}, f"a response has other members: {sorted(value)}"
        validate_result(value["result"], version, answers, sender)


def _check_call(value: Json, version: str, sender: Sender) -> None:
    kind = "request" if "id" in value else "notification"
    method = value["method"]
    known = any((method, version) in table for table in CALLS.values())
    assert known, f"{method}: this revision has no such method"
    definition = CALLS[sender, kind].get((method, version))
    assert definition is not None, f"{method}: not a {kind} that a {sender} sends"
    _read(definition, value, version)


def _check_error(value: Json, version: str) -> None:
    assert "result" not in value, f"both a result and an error: {value!r}"
    # The transport's chapter of every revision allows errors that have no id.
    assert value.keys() <= {"jsonrpc", "id", "error"}, f"an error has other members: {sorted(value)}"
    check_error(value["error"])
    data = ERROR_DATA.get(value["error"]["code"])
    if data is not None and version == MODERN:
        assert "data" in value["error"], f"error.data is missing: {value['error']!r}"
        _read(data, value["error"]["data"], version)


def check_error(error: Json) -> None:
    """Fail unless this is a valid JSON-RPC error."""
    assert isinstance(error, dict), f"error: not an object: {error!r}"
    assert error.keys() <= {"code", "message", "data"}, f"error has other members: {sorted(error)}"
    assert type(error.get("code")) is int, f"error.code is no integer: {error!r}"
    assert type(error.get("message")) is str, f"error.message is no text: {error!r}"


def validate_result(result: Json, version: str, method: str, sender: Sender = "server") -> None:
    """Judge a result by the method that it answers."""
    kind = RESULTS[sender].get((method, version))
    assert kind is not None, f"{method}: this revision has no such method"
    if result.get("resultType") == "input_required":
        assert method in methods.INPUT_REQUIRED_METHODS, f"{method}: its answer cannot ask for input"
        assert result.keys() & {"inputRequests", "requestState"}, f"{method}: asks for input, but for none"
    if getattr(kind, "__name__", "") in {"EmptyResult", "Result"}:
        # The specification lets an empty result hold anything; the TypeScript SDK's parser does not.
        assert result.keys() <= {"_meta"}, f"{method}: an empty result holds {sorted(result)}"
    _read(kind, result, version)
    if method == "tools/list":
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
    """An ASGI application around another; it changes nothing and keeps the messages.

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
        """Remember the method of a request: its answer may come on another connection."""
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
        """Return the requests in a message of the client."""
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
