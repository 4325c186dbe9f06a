"""Parsers that see bytes of others. A target takes any bytes, and raises only if a rule of the parser is broken.

Allowed is what each parser promises: its own error for bad input, and nothing else. Where there is a writer too, the value that was read is written and read again.

The heads of HTTP requests have a fuzzer of their own: `tests/http/fuzz.py`.
"""

import contextlib
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from limpet.auth.oauth import challenges, metadata
from limpet.auth.seal import Sealer
from limpet.cli.config.toml_file import read_toml
from limpet.engine.session import event_id, parse_event_id
from limpet.errors import ConfigError, WireError
from limpet.ports import SystemRandom
from limpet.server.catalog.uri_templates import Template
from limpet.stores.shared.commit import NUMBERS
from limpet.stores.shared.draft import SharedDocument
from limpet.stores.shared.fields import BY_PREFIX, Unreadable
from limpet.upstream.http_status import json_rpc_error
from limpet.wire.jsonrpc import BATCH, decode, decode_raw
from limpet.wire.sse import EventParser, event

_SEALER: Final = Sealer(SystemRandom(), "fuzz", [b"k" * 32])
_TEMPLATES: Final = tuple(
    Template(text) for text in ("data://{name}", "file:///{+path}", "x://{a}/{b}{?q,r}", "x://a{.b}{/c}")
)
_SSE_LIMIT: Final = 4_096


class Refused(Exception):
    """An answer of the parser that a target does not allow."""


def json_rpc(data: bytes) -> None:
    """A message of a client or a server."""
    with contextlib.suppress(WireError):
        decode(data, max_values=10_000, max_batch=BATCH)
    with contextlib.suppress(WireError):
        decode_raw(data)


def server_sent_events(data: bytes) -> None:
    """A stream of events; the parts in which it arrives do not matter."""
    outcomes = []
    for parts in ([data], [data[at : at + 1] for at in range(len(data))]):
        parser = EventParser(_SSE_LIMIT)
        try:
            outcomes.append([one for part in parts for one in parser.feed(part)])
        except WireError:
            outcomes.append([])
    if len(data) < _SSE_LIMIT and outcomes[0] != outcomes[1]:
        raise Refused(outcomes)


def event_ids(data: bytes) -> None:
    """The header Last-Event-ID."""
    found = parse_event_id(data.decode("latin-1"))
    if found is not None and parse_event_id(event_id(*found)) != found:
        raise Refused(found)


def request_states(data: bytes) -> None:
    """A sealed text that comes back from a client."""
    opened = _SEALER.open(data.decode("latin-1"))
    if opened is not None and opened != b"state":
        raise Refused(opened)


def store_records(data: bytes) -> None:
    """Fields of a session that another release, or an attacker who can write to the store, has left there."""
    numbers = struct.pack(f"<{len(NUMBERS)}d", *([0.0] * len(NUMBERS)))
    for prefix in BY_PREFIX:
        with contextlib.suppress(Unreadable):
            doc = SharedDocument(numbers, {f"{prefix}a": data})
            for table in doc.tables.values():
                list(table.items())
    with contextlib.suppress(Unreadable):
        SharedDocument(data, {})


def toml_files(data: bytes) -> None:
    """A limpet.toml."""
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        path = Path(file.name)
        path.write_bytes(data)
        with contextlib.suppress(ConfigError):
            read_toml(path)


def uris(data: bytes) -> None:
    """The URI of a resource, against templates."""
    uri = data.decode("utf-8", "replace")
    for template in _TEMPLATES:
        template.match(uri)


def oauth_documents(data: bytes) -> None:
    """Documents and challenges of an authorization server."""
    for kind in (
        metadata.ResourceMetadata,
        metadata.ServerMetadata,
        metadata.TokenAnswer,
        metadata.RegistrationAnswer,
    ):
        metadata.read(data, kind)
    challenges.oauth_challenge({"www-authenticate": [data.decode("latin-1")]})


def http_errors(data: bytes) -> None:
    """The body of an error of a server behind."""
    json_rpc_error(data)


class Target(NamedTuple):
    """A parser, and inputs to begin with."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


_CALL: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,2.5,null,"\\u00e9"]}}}'
TARGETS: Final[dict[str, Target]] = {
    "json-rpc": Target(
        json_rpc, (_CALL, b"[" + _CALL + b"]", b'{"jsonrpc":"2.0","id":"a","result":{}}', b"[" * 70)
    ),
    "sse": Target(
        server_sent_events, (event(b'{"a":1}', "s.1.f"), b"retry: 5\r\ndata: a\rdata:b\n\n", b":c\n\n")
    ),
    "event-ids": Target(event_ids, (b"abc.12.ff", b"abc.1.0", b"a.b.c.d")),
    "request-state": Target(request_states, (_SEALER.seal(b"state").encode(), b"v1.AAAA")),
    "store-records": Target(
        store_records,
        (b"\x96\x01\x02\x03\x04\x05\x06", b'{"key":"k","principal":"p","version":"v"}\x93\xa0\xc3\xa0'),
    ),
    "toml": Target(
        toml_files,
        (b'[servers.a]\nobject = "a.py:server"\n', b'http = "127.0.0.1:1"\n[servers.a]\nurl = "http://a"\n'),
    ),
    "uris": Target(uris, (b"data://name", b"file:///a/b%20c", b"x://a/b?q=1&r=2", b"x://a.b/c")),
    "http-errors": Target(
        http_errors, (b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}', b'{"error":"no"}')
    ),
    "oauth": Target(
        oauth_documents,
        (
            b'{"issuer":"https://a","token_endpoint":"https://a/t"}',
            b'Bearer realm="a", scope="b", resource_metadata="https://c"',
        ),
    ),
}
