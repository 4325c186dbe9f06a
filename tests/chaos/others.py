"""`python -m tests.chaos.others [--requests 100]`: the same faults for servers of other projects, seen from outside.

Each server is that of the comparison (`tools/comparison/servers`), with the tool `steps`: it notes its start in a file, reports five steps, and returns the
nonce of its call. A client of 2025-11-25 meets one fault in each call, and then goes on as it may: it resumes with its last event id, or, if it has none,
sends the same POST again. What a client must not see is a violation; the worst of each call counts. Writes `docs/proof/others.json` and a table of
`docs/proof.md`.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from typing_extensions import override

from limpet import __version__
from limpet.wire.sse import EventParser
from tests.chaos.players import Clipped
from tests.chaos.record import PAGE, REPORTS
from tests.http.client import Client, Connection, Cut, Response, call
from tests.messages import BOTH, request
from tools.comparison.peers import PEERS, ROOT, SERVERS, VERSIONS, Peer, started, wait_until_connected
from tools.ports import free_port

LANES: Final = 20
"""Sessions side by side."""
PATIENCE: Final = 10.0
STEPS: Final = [1, 2, 3, 4, 5]
PAUSE: Final = 0.2
SLOW_SECONDS: Final = 1.0
LEAST: Final = 400
"""Bytes of the head and the first events of an answer: a cut may fall anywhere behind the first byte."""
NEED_STEPS: Final = {"last", "unnoticed"}
"""Faults after a step: they cannot be tried on a server that passes on no progress."""
KINDS: Final = {
    "foreign": "something of another request or session arrived",
    "no answer": "no answer and no error came",
    "no session": "the session was gone",
    "twice": "the tool ran twice",
    "events": "events were lost, repeated or out of order",
}
"""The worst first."""
_PLACE: Final = re.compile(r"(?<=<!-- others -->\n).*?(?=<!-- /others -->)", re.DOTALL)


FAULTS: Final = {
    "none": "nothing",
    "head": "cut in the head of the request",
    "body": "cut in the body of the request",
    "answer": "cut anywhere in the answer",
    "last": "cut before the last event",
    "unnoticed": "resumed while the server still has the old connection",
    "half": "closed on the client's side after the request",
    "slow": "not read for a second",
    "same": "two calls with one id at once",
    "alike": 'calls with the ids `7` and `"7"` at once',
    "resume": "an event id of another session in a resume",
    "kill": "the process is killed, and starts again",
}
"""What happens to a call."""
_PROGRAM: Final = (
    "/usr/bin/env",
    "RUNS={store}.runs",
    str(ROOT / ".peers" / "mcp1" / "bin" / "python"),
    str(SERVERS / "of_mcp.py"),
    "stdio",
)
OTHERS: Final = (
    *PEERS,
    Peer(
        "TypeScript SDK", VERSIONS["TS_SDK"], str(ROOT / ".node" / "bin" / "node"), (str(SERVERS / "of_typescript1.mjs"),)
    ),
    Peer(
        "`mcp-proxy`", VERSIONS["MCP_PROXY"], str(ROOT / ".peers" / "mcp-proxy" / "bin" / "mcp-proxy"),
        ("--port", "{port}", "--", *_PROGRAM),
    ),
    Peer(
        "Limpet, the same program behind", "", sys.executable,
        ("-m", "limpet", "serve", "--log-level", "error", "--http", "127.0.0.1:{port}", "--store", "sqlite:///{store}", "--", *_PROGRAM),
    ),
)  # fmt: skip


def label(peer: Peer) -> str:
    """Return the name of a server in the table."""
    return f"{peer.name} {peer.version or __version__}"


class Ported(Client):
    """A client that names the port of its server, as browsers do: some servers refuse others."""

    @override
    def headers(self, accept: str = BOTH) -> dict[str, str]:
        return {**super().headers(accept), "Host": f"127.0.0.1:{self.port}"}


class Seen(NamedTuple):
    """What the client of one call has received."""

    id: int | str
    nonce: str
    wanted: list[int]
    """The steps that it must get."""
    steps: list[int]
    ids: list[str]
    """Of its events."""
    found: set[str]
    """Kinds of violations."""
    ended: asyncio.Event

    def take(self, message: Any) -> None:
        """Look at a message of its stream."""
        params = message.get("params", {})
        if "method" not in message:
            self._answered(message)
        elif message["method"] == "notifications/progress":
            if params.get("progressToken") != self.nonce:
                self.found.add("foreign")
            self.steps.append(round(params.get("progress", 0)))

    def _answered(self, message: Any) -> None:
        if message.get("id") != self.id or type(message["id"]) is not type(self.id):
            self.found.add("foreign")
            return
        if "result" in message:
            if message["result"].get("content", [{}])[0].get("text") != self.nonce:
                self.found.add("foreign")
            elif self.steps != self.wanted:
                self.found.add("events")
        self.ended.set()


class Gone(Exception):
    """The session is not known any more."""


class Caller:
    """A client with a session."""

    _names = count(1)

    def __init__(self, port: int, patience: float) -> None:
        self._patience = patience
        """Seconds until an answer that has not come is taken as lost."""
        self._random = Random(f"others/{next(self._names)}")
        self._port = port
        self.client = Ported(port)
        self.wanted = STEPS
        """Empty for a server that passes on no progress."""
        self.last_ids: list[str] = []
        """The event ids of its last call that had an answer."""

    async def open(self) -> None:
        """Begin a session."""
        self.client = await Ported.opened(self._port)

    def new(self, id: int | str = "") -> tuple[Seen, bytes]:  # noqa: A002 - the protocol's word
        """Return a call, and its body."""
        number = next(self.client.numbers)
        nonce = f"n{self._random.getrandbits(48):x}"
        message = call(id or number, "steps", nonce=nonce)
        message["params"]["_meta"]["progressToken"] = nonce
        return Seen(id or number, nonce, self.wanted, [], [], set(), asyncio.Event()), json.dumps(
            message
        ).encode()

    async def see(self, fault: str, *others: "Caller") -> list[Seen]:
        """Make a call, or two, that meet this fault."""
        if fault in {"same", "alike"}:
            number = next(self.client.numbers)
            calls = [self.new(number), self.new(number if fault == "same" else str(number))]
        else:
            calls = [self.new()]
        # The death of a process is noticed by its lease.
        patience = self._patience * (4 if fault == "kill" else 1)
        await asyncio.gather(*(self._through(seen, body, fault, patience) for seen, body in calls))
        if fault == "resume" and others:
            await self._steal(calls[0][0], others[0])
        for seen, _ in calls:
            if not seen.ended.is_set() and not seen.found:
                seen.found.add("no answer")
        if any(seen.found & {"no answer", "no session"} for seen, _ in calls):
            await self.open()
        self.last_ids = calls[0][0].ids
        return [seen for seen, _ in calls]

    async def _through(self, seen: Seen, body: bytes, fault: str, patience: float) -> None:
        """See one call through to its answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                trick = fault
                while not seen.ended.is_set() and not seen.found:
                    await self._connection(seen, body, trick)
                    trick = ""
                    if not seen.ended.is_set():
                        await asyncio.sleep(PAUSE)

    async def _connection(self, seen: Seen, body: bytes, trick: str) -> None:
        connection: Clipped | None = None
        try:
            connection = await Clipped.open(self._port)
            if trick in {"head", "body"}:
                first = 1 if trick == "head" else 200
                connection.send_at = first + self._random.randrange(150)
            connection.half, connection.slow = trick == "half", SLOW_SECONDS * (trick == "slow")
            cut_at = self._random.randrange(1, LEAST * 4) if trick == "answer" else None
            if seen.ids:
                response = await self.client.get(seen.ids[-1], on=connection, cut_at=cut_at)
            else:
                del seen.steps[:]
                response = await self.client.post(body, on=connection, cut_at=cut_at)
            await self._read(seen, response, trick)
        except Gone:
            seen.found.add("no session")
        except (Cut, OSError):
            pass
        finally:
            if connection is not None and trick != "unnoticed":
                connection.cut()

    async def _read(self, seen: Seen, response: Response, trick: str) -> None:
        if response.status == 404:
            raise Gone
        if not response.is_stream:
            self._refused(seen, response.status, await response.body(), trick)
            return
        parser = EventParser(1 << 20)
        async for chunk in response.chunks():
            for event in parser.feed(chunk):
                if event.id:
                    seen.ids.append(event.id)
                if event.data:
                    seen.take(json.loads(event.data))
            if trick == "unnoticed" and seen.steps and not seen.ended.is_set():
                response.connection.stop_reading()
                return
            if trick == "last" and len(seen.steps) >= len(STEPS) and not seen.ended.is_set():
                raise Cut("cut by the test before the last event")

    def _refused(self, seen: Seen, status: int, body: bytes, trick: str) -> None:
        """Look at an answer that is no stream. A refusal of a resume ends nothing, and one of a second call with an id may name no request."""
        with suppress(ValueError, AttributeError):
            message = json.loads(body)
            if status == 200 or (message.get("id") == seen.id and not seen.ids):
                seen.take(message)
            elif trick == "same" and "error" in message:
                seen.ended.set()

    async def _steal(self, seen: Seen, other: "Caller") -> None:
        """Resume with an event id of another session."""
        if not other.last_ids:
            return
        with suppress(TimeoutError, Cut, OSError):
            async with asyncio.timeout(SLOW_SECONDS):
                response = await self.client.get(other.last_ids[0])
                parser = EventParser(1 << 20)
                async for chunk in response.chunks():
                    if response.status == 200 and any(event.data for event in parser.feed(chunk)):
                        seen.found.add("foreign")

    async def is_there(self) -> bool:
        """Return True if the session still answers."""
        with suppress(Cut, OSError, TimeoutError):
            async with asyncio.timeout(self._patience):
                response = await self.client.post(request(next(self.client.numbers), "ping"))
                await response.body()
                response.connection.cut()
                return response.status == 200
        return False


class Result(Struct, frozen=True):
    """The outcome of one fault for one server."""

    requests: int
    violated: int
    kinds: dict[str, int]


async def tried(
    peer: Peer, faults: list[str], requests: int, patience: float = PATIENCE
) -> dict[str, Result]:
    """Try all faults on a server."""
    found: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as folder:
        for fault in faults:
            store = Path(folder) / f"{fault}.db"
            seen = await _of_fault(peer, store, fault, requests, patience)
            runs = Counter(Path(f"{store}.runs").read_text().splitlines())
            for one in seen:
                if runs[one.nonce] > 1:
                    one.found.add("twice")
            worst = Counter(next(kind for kind in KINDS if kind in one.found) for one in seen if one.found)
            found[fault] = Result(len(seen), sum(worst.values()), dict(worst))
            print(f"{label(peer)}: {fault}: {found[fault]}", flush=True)
    return found


async def _of_fault(peer: Peer, store: Path, fault: str, requests: int, patience: float) -> list[Seen]:
    port = free_port()
    with ExitStack() as stack:
        process = stack.enter_context(started(peer, port, store))
        await asyncio.to_thread(wait_until_connected, port, process)
        callers = [Caller(port, patience) for _ in range(LANES)]
        await asyncio.gather(*(caller.open() for caller in callers))
        for caller in callers:
            [first] = await caller.see("none")
            caller.wanted = first.steps and STEPS
        if fault in NEED_STEPS and not callers[0].wanted:
            return []
        seen: list[Seen] = []
        for _ in range(max(1, requests // LANES)):
            making = [
                asyncio.create_task(one.see(fault, other))
                for one, other in zip(callers, callers[1:] + callers[:1], strict=True)
            ]
            if fault == "kill":
                await asyncio.sleep(PAUSE / 2)
                process.kill()
                await asyncio.to_thread(process.wait)
                process = stack.enter_context(started(peer, port, store))
                await asyncio.to_thread(wait_until_connected, port, process)
            done = await asyncio.gather(*making)
            for caller, some in zip(callers, done, strict=True):
                if not any(one.found for one in some) and not await caller.is_there():
                    some[0].found.add("no session")
                    await caller.open()
            seen += [one for some in done for one in some]
        await Connection.cut_all()
    return seen


def table(data: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield f"Of {data['date']}, `{data['command']}`; violations per 10,000 calls, and the kinds that were seen, the most frequent first.\n"
    yield "| fault | " + " | ".join(data["servers"]) + " |"
    yield "|---" * (len(data["servers"]) + 1) + "|"
    for fault, title in FAULTS.items():
        if fault not in data["results"][0]:
            continue
        cells = []
        for results in data["results"]:
            one = msgspec.convert(results[fault], Result)
            kinds = ", ".join(sorted(one.kinds, key=lambda kind: -one.kinds[kind]))
            often = f"{round(10_000 * one.violated / one.requests):,}" if one.requests else "–"
            cells.append(often + (f": {kinds}" if kinds else ""))
        yield f"| {title} | " + " | ".join(cells) + " |"


def main() -> int:
    """Try all servers, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.others")
    parser.add_argument("--requests", type=int, default=100, help="calls for each fault and server")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds until an answer is taken as lost"
    )
    parser.add_argument("--fault", action="append", choices=list(FAULTS))
    parser.add_argument("--server", help="a part of its name; nothing is written then")
    arguments = parser.parse_args()
    os.environ["SDK"] = str(ROOT / ".node" / "clients")
    peers = [peer for peer in OTHERS if not arguments.server or arguments.server in label(peer)]
    results = [
        asyncio.run(tried(peer, arguments.fault or list(FAULTS), arguments.requests, arguments.patience))
        for peer in peers
    ]
    data = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": f"python -m tests.chaos.others --requests {arguments.requests} --patience {arguments.patience:g}",
        "servers": [label(peer) for peer in peers],
        "results": [msgspec.to_builtins(found) for found in results],
    }
    lines = "\n".join(table(data))
    print(lines)
    if not arguments.server and not arguments.fault:
        (REPORTS / "others.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n"
        )
        PAGE.write_text(_PLACE.sub(lambda _: lines + "\n", PAGE.read_text()))
    return int(
        any(
            one.violated
            for peer, found in zip(peers, results, strict=True)
            if peer.name.startswith("Limpet")
            for one in found.values()
        )
    )


if __name__ == "__main__":
    sys.exit(main())
