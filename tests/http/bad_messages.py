"""`python -m tests.http.bad_messages [--count 25000] [--seed 1]`: bad messages for the example server, beside a healthy client that must not notice.

First the *corpus*: each member of a message gets each JSON value that it must not have, in both eras, and each has its expected error. Then generated
messages: members are changed, removed or invented, and bytes of the result too. No answer may be an internal error, be late, or end the server.
"""

import argparse
import asyncio
import contextlib
import copy
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from limpet.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from tests.fuzz.__main__ import changed
from tests.http.client import Client, Connection, Cut, Response, call, value
from tests.http.serving import limpet_serve
from tests.messages import BOTH, JSON_TYPE, initialize, metadata, modern_headers, request

PATIENCE: Final = 60.0
"""Seconds for an answer: a loaded machine may be slow, and a server that hangs is found."""
LANES: Final = 8
REFUSED: Final = {200, 202, 400, 403, 404, 405, 406, 408, 411, 413, 414, 415, 421, 429, 431}
VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1.5, 10**30, "", "zzz", "\x00", "x" * 5_000, [], ["x"], [[[]]], {}, {"a": {"b": [1]}}, {"": None},
)  # fmt: skip
NOT_JSON: Final = (
    b"", b" ", b"{", b"}", b"[", b'"', b"{]", b"nul", b"NaN", b"{'a':1}", b'{"a":1,}', b'{"a" 1}', b"\xff\xfe", b"\x00", b'{"jsonrpc":"2.0"', b"<xml/>", b"a=1",
)  # fmt: skip
NOT_ONE: Final = (
    b"[]",
    b"[1]",
    b"null",
    b"true",
    b"1",
    b"1.5",
    b'"text"',
    b"[[]]",
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    b"{}",
)
"""JSON, and no message."""


class Member(NamedTuple):
    """A member of a message: what it must be, and the error if it is not."""

    method: str
    name: str
    """In `params`; in the envelope if `code` is INVALID_REQUEST."""
    good: Callable[[Any], bool]
    code: int = INVALID_PARAMS


def _none(value: Any) -> bool:
    del value
    return False


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _nothing_or(good: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or good(value)


def _id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= 256
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


MEMBERS: Final = (
    Member("ping", "jsonrpc", _none, INVALID_REQUEST),
    Member("ping", "id", _id, INVALID_REQUEST),
    Member("ping", "method", _text, INVALID_REQUEST),
    Member("ping", "params", _nothing_or(_table), INVALID_REQUEST),
    Member("tools/call", "name", _none),
    Member("tools/call", "arguments", _nothing_or(_table)),
    Member("tools/call", "_meta", _table),
    Member("tools/list", "cursor", _nothing_or(_none)),
    Member("resources/list", "cursor", _nothing_or(_none)),
    Member("resources/templates/list", "cursor", _nothing_or(_none)),
    Member("prompts/list", "cursor", _nothing_or(_none)),
    Member("resources/read", "uri", _text),
    Member("prompts/get", "name", _none),
    Member("prompts/get", "arguments", _nothing_or(_table)),
    Member("completion/complete", "ref", _none),
    Member("completion/complete", "argument", _none),
    Member("logging/setLevel", "level", _none),
    Member("resources/subscribe", "uri", _text),
    Member("resources/unsubscribe", "uri", _text),
    Member("initialize", "capabilities", _table),
    Member("initialize", "clientInfo", _none),
)
ONLY_SESSIONS: Final = {
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "initialize",
}
"""2026-07-28 does not have them."""
GOOD: Final[dict[str, dict[str, Any]]] = {
    "ping": {},
    "tools/call": {"name": "echo", "arguments": {"text": "x"}},
    "prompts/get": {"name": "greet", "arguments": {}},
    "resources/read": {"uri": "x://y"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "who", "value": ""},
    },
    "initialize": initialize(),
}
"""Parameters that are right, before one of them is changed."""


class Bad(NamedTuple):
    """A message of the corpus."""

    body: bytes
    headers: dict[str, str]
    """Besides those of every request; of a session if there are none."""
    codes: frozenset[int]


def corpus() -> Iterator[Bad]:
    """Yield the messages that have an expected error."""
    for texts, codes in ((NOT_JSON, {PARSE_ERROR, INVALID_REQUEST}), (NOT_ONE, {INVALID_REQUEST})):
        for text in texts:
            yield Bad(text, {}, frozenset(codes))
    for member in MEMBERS:
        for wrong in VALUES:
            if member.good(wrong):
                continue
            message = request(7, member.method, dict(GOOD.get(member.method, {})))
            (message if member.code == INVALID_REQUEST else message["params"])[member.name] = wrong
            for headers in _headers(member, message):
                yield Bad(json.dumps(message).encode(), headers, frozenset({member.code}))


def _headers(member: Member, message: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the headers with which a message is sent: in a session, without one, and with the metadata of 2026-07-28."""
    if member.method == "initialize":
        yield {"Accept": BOTH}
        return
    if member.name != "_meta":
        # A session needs no metadata, so it does not look at those of a request.
        yield {}
    if member.method not in ONLY_SESSIONS:
        message["params"].setdefault("_meta", metadata())
        headers = modern_headers(member.method, message["params"])
        if all(text.isprintable() and len(text) < 1_000 for text in headers.values()):
            yield headers


def generated(chance: random.Random) -> tuple[bytes, dict[str, str]]:
    """Return a message that is wrong somewhere, and its headers."""
    method = chance.choice(
        [*GOOD, "tools/list", "zzz", "notifications/cancelled", "notifications/progress", "server/discover"]
    )
    message = request(chance.choice([1, "1", "x", *VALUES]), method, copy.deepcopy(GOOD.get(method, {})))
    is_modern = chance.random() < 0.4
    if is_modern:
        message["params"]["_meta"] = metadata()
    headers = modern_headers(method, message["params"]) if is_modern else {}
    for _ in range(chance.randint(1, 3)):
        place = chance.choice(
            [message, message["params"]] if isinstance(message.get("params"), dict) else [message]
        )
        name = chance.choice(
            [*place, "zzz", "_meta", "result", "error", "cursor", "task", "inputResponses", "requestState"]
        )
        if chance.random() < 0.3:
            place.pop(name, None)
        else:
            place[name] = copy.deepcopy(chance.choice(VALUES))
    body = json.dumps(message).encode()
    return (changed(chance, (body,)) if chance.random() < 0.4 else body), headers


class Tester:
    """Sends messages to a server, and looks at the answers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.client = Client(port)
        self.faults: list[str] = []
        self.slowest = 0.0
        """Of the healthy client."""
        self.healthy = 0

    async def send(
        self, body: bytes, headers: dict[str, str], connection: Connection
    ) -> tuple[int, int | None]:
        """Send a message; return the status, and the code of the error if there is one."""
        own = {**self.client.headers(), "Content-Type": JSON_TYPE}
        if headers:
            own = {"Accept": BOTH, "Content-Type": JSON_TYPE, **headers}
        async with asyncio.timeout(PATIENCE):
            response = await connection.request("POST", {**own, "Content-Length": str(len(body))}, body)
            return response.status, await _code(response)

    async def check_corpus(self) -> int:
        """Send every message of the corpus; return how many there are."""
        bads = list(corpus())
        for bad in bads:
            connection = await Connection.open(self.port)
            status, code = await self.send(bad.body, bad.headers, connection)
            connection.cut()
            if code not in bad.codes or status not in REFUSED:
                self.faults.append(
                    f"{status} {code}, not {set(bad.codes)}: {bad.headers and 'modern '}{bad.body[:160]!r}"
                )
        return len(bads)

    async def lane(self, chance: random.Random, count: int) -> None:
        """Send generated messages, one after another, over as few connections as possible."""
        connection = await Connection.open(self.port)
        for _ in range(count):
            body, headers = generated(chance)
            if connection.is_ended:
                connection = await Connection.open(self.port)
            try:
                status, code = await self.send(body, headers, connection)
            except (Cut, OSError, TimeoutError) as error:
                self.faults.append(f"{error!r} for {body[:200]!r}")
                connection.cut()
                continue
            if status not in REFUSED or code == INTERNAL_ERROR:
                self.faults.append(f"{status} {code} for {body[:200]!r}")
        connection.cut()

    async def beside(self) -> None:
        """Call for as long as the others send, and look at every answer."""
        client = await Client.opened(self.port)
        while True:
            began, text = time.monotonic(), f"healthy {self.healthy}"
            if (got := await client.call("echo", text=text)) != text:
                self.faults.append(f"the healthy client got {got!r}, not {text!r}")
            response = await client.post(call(f"ticks {self.healthy}", "ticks", n=3, interval=0.01))
            messages = [message async for message in response.messages()]
            response.connection.cut()
            if len(messages) != 4 or "3" not in str(value(messages[-1])):
                self.faults.append(f"the healthy client got {messages}")
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.healthy += 2


async def _code(response: Response) -> int | None:
    last: Any = None
    if response.is_stream:
        last = await response.answer()
    else:
        body = await response.body()
        with contextlib.suppress(ValueError):
            last = json.loads(body)
    error = last.get("error") if isinstance(last, dict) else None
    return error["code"] if error else None


async def run(port: int, count: int, seed: int) -> tuple[Tester, int]:
    """Send the corpus, then so many generated messages; return the tester, and the size of the corpus."""
    tester = Tester(port)
    tester.client = await Client.opened(port)
    healthy = asyncio.create_task(tester.beside())
    size = await tester.check_corpus()
    tester.client = await Client.opened(port)
    await asyncio.gather(
        *(tester.lane(random.Random(f"{seed}/{lane}"), count // LANES) for lane in range(LANES))
    )
    if healthy.done():
        healthy.result()
    healthy.cancel()
    await asyncio.gather(healthy, return_exceptions=True)
    await Connection.cut_all()
    return tester, size


def main() -> int:
    """Start the example server, and send what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.http.bad_messages")
    parser.add_argument("--count", type=int, default=25_000, help="generated messages")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with limpet_serve("examples/everything.py:server") as process:
        tester, size = asyncio.run(run(process.port, arguments.count, arguments.seed))
        if "Traceback" in process.output():
            tester.faults.append("the log of the server has a traceback")
    print(
        f"{size} messages of the corpus, {arguments.count // LANES * LANES} generated; {tester.healthy} healthy calls, {len(tester.faults)} faults"
    )
    print(*tester.faults[:40], sep="\n")
    return int(bool(tester.faults))


if __name__ == "__main__":
    sys.exit(main())
