"""`python -m tools.walks`: the ways of five messages through the house, as they really run.

Each message goes through a real server: `limpet serve`'s protocol on a socket of this process, its event loop, its
store. A profile function records each call of a function of `src/limpet` from the first byte of the request to the last
byte of the response. Four numbers come of it:

- frames: calls of functions. A coroutine counts once; comprehensions do not count.
- entries: the same, and each time that a coroutine is resumed.
- files: the modules that these functions are in.
- crossings: calls whose caller is in another layer (the first folder below `limpet`). A task that starts has no caller.

Timers of the server may fall into a message, and on a busy machine a step may find its work done already. So each message is
sent several times, and the most frequent way counts.
"""

import argparse
import asyncio
import dis
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import limpet
from limpet import Context, Process, Server
from limpet.config import HttpSettings
from limpet.fronts.http.http1.sockets import bind
from limpet.fronts.http.http1.start_and_stop import Service
from limpet.transports.loops import run
from tools.ports import free_port

ROOT: Final = Path(__file__).parents[1]
HOUSE: Final = str(Path(limpet.__file__).parent) + "/"
TRIES: Final = 9
_CLEAN_UP: Final = 0.1
"""Seconds after which no work of a request runs any more."""
_JSON: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_SESSIONS: Final = "2025-11-25"
_SESSIONLESS: Final = "2026-07-28"


class Step(NamedTuple):
    """One call: the file below `limpet`, the function, and whether its caller is in another layer."""

    file: str
    function: str
    crosses: bool


class Walk(NamedTuple):
    """The calls of one message, and how often a coroutine was resumed on the way."""

    steps: list[Step]
    resumed: list[str]

    def figures(self) -> tuple[int, int, int, int]:
        """Return frames, entries, files and crossings."""
        frames = len(self.steps)
        files = {step.file for step in self.steps}
        return frames, frames + len(self.resumed), len(files), sum(step.crosses for step in self.steps)


def layer_of(file: str) -> str:
    """Return the layer of a file: its first folder, or the module itself."""
    return file.partition("/")[0].removesuffix(".py")


@cache
def _start_of(code: CodeType) -> int:
    """Return where a function begins. A coroutine that is resumed is further on."""
    return next((item.offset for item in dis.get_instructions(code) if item.opname == "RESUME"), 0)


def _caller(frame: FrameType | None) -> str | None:
    """Return the layer of the nearest caller in the house. What the event loop calls has none."""
    while frame is not None and frame.f_code is not run.__code__:
        if frame.f_code.co_filename.startswith(HOUSE):
            return layer_of(frame.f_code.co_filename.removeprefix(HOUSE))
        frame = frame.f_back
    return None


@contextmanager
def recording() -> Iterator[Walk]:
    """Record the calls of this thread."""
    walk = Walk([], [])

    def look(frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(HOUSE):
            return
        if code.co_name.endswith(("comp>", "genexpr>")):
            return
        if frame.f_lasti > _start_of(code):
            walk.resumed.append(code.co_qualname)
            return
        file = code.co_filename.removeprefix(HOUSE)
        caller = _caller(frame.f_back)
        crosses = caller is not None and caller != layer_of(file)
        walk.steps.append(Step(file, code.co_qualname.replace(".<locals>", ""), crosses))

    sys.setprofile(look)
    try:
        yield walk
    finally:
        sys.setprofile(None)


# A server with the tools that the messages call


def make_server(store: str | None = None) -> Server:
    """Return the server that the messages walk through."""
    server = Server("walks", version="1", store=store)

    @server.tool
    async def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.tool
    async def count(ctx: Context) -> str:
        """Report two steps."""
        await ctx.progress(1, 2)
        await ctx.progress(2, 2)
        return "done"

    @server.tool
    async def greet(ctx: Context) -> str:
        """Ask the user for a name."""
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        answer = await ctx.elicit("Who are you?", schema)
        return f"hello {answer.data}"

    return server


class House:
    """A running server, and a raw connection to it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.session = ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, headers: dict[str, str], body: object = None) -> bytes:
        """Send a request and return the whole response, head and body."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        lines = {"Host": f"127.0.0.1:{self.port}", **_JSON, "Content-Length": str(len(data)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"{method} /mcp HTTP/1.1\r\n{head}\r\n".encode() + data)
        return await _response(reader)

    async def open(self) -> None:
        """Open a session."""
        params = {
            "protocolVersion": _SESSIONS,
            "capabilities": {},
            "clientInfo": {"name": "w", "version": "1"},
        }
        answer = await self.send("POST", {}, _request(0, "initialize", params))
        head = answer.partition(b"\r\n\r\n")[0].decode()
        self.session = next(
            line.partition(": ")[2]
            for line in head.split("\r\n")
            if line.lower().startswith("mcp-session-id")
        )

    async def post(self, number: int, params: dict[str, Any]) -> bytes:
        """Call a tool in the session."""
        return await self.send("POST", self.headers, _request(number, "tools/call", params))

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request in the session."""
        return {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": _SESSIONS}

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


async def _response(reader: asyncio.StreamReader) -> bytes:
    """Read one response, with a length or in chunks."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(maxsplit=2)[1])
    if status != 200:  # noqa: PLR2004 - OK
        raise RuntimeError(f"answered {status}: {head.decode()}{await reader.read(1_000)!r}")
    length = head.lower().partition(b"content-length: ")[2]
    if length:
        return head + await reader.readexactly(int(length.partition(b"\r\n")[0]))
    parts = [head]
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)


@asynccontextmanager
async def running(server: Server | Process) -> AsyncIterator[House]:
    """Serve until the block ends."""
    service = Service(server.front(HttpSettings()))
    with bind("127.0.0.1", 0) as listener:
        serving = asyncio.ensure_future(service.serve([listener]))
        await service.started.wait()
        house = House(int(listener.getsockname()[1]))
        try:
            await house.open()
            yield house
        finally:
            house.close()
            service.stop(force=True)
            await serving


async def _usual(way: Callable[[int], Awaitable[Walk]]) -> Walk:
    """Go a way several times, after one time that warms up; return the most frequent walk, of equally frequent ones the shortest."""
    _, *walks = [await way(number) for number in range(1, TRIES + 2)]
    times = Counter(tuple(walk.steps) for walk in walks)
    return min(walks, key=lambda walk: (-times[tuple(walk.steps)], walk.figures()))


@asynccontextmanager
async def _recorded() -> AsyncIterator[Walk]:
    """Record, and let what follows the response end as well: the loop turns a few times."""
    with recording() as walk:
        yield walk
        for _ in range(5):
            await asyncio.sleep(0)


async def plain_call(server: Server | Process) -> Walk:
    """Call a tool in a session that answers at once."""

    async def way(number: int) -> Walk:
        async with _recorded() as walk:
            answer = await house.post(number, {"name": "echo", "arguments": {"text": "hello"}})
        assert b"hello" in answer  # noqa: S101
        return walk

    async with running(server) as house:
        return await _usual(way)


def program() -> Process:
    """Return the same server as a program on stdio, behind Limpet."""
    source = "from tools.walks import make_server; make_server().run('stdio')"
    return Process([sys.executable, "-c", source], cwd=ROOT)


async def streamed_call() -> Walk:
    """Call a tool in a session that reports progress twice: the response is a stream of events."""

    async def way(number: int) -> Walk:
        async with _recorded() as walk:
            answer = await house.post(number, {"name": "count", "_meta": {"progressToken": number}})
        assert answer.count(b"notifications/progress") == 2  # noqa: PLR2004, S101
        return walk

    async with running(make_server()) as house:
        return await _usual(way)


async def elicitation() -> Walk:
    """Call a tool without a session that asks the user, and send the call again with the answer."""
    prefix = "io.modelcontextprotocol/"
    meta = {
        f"{prefix}protocolVersion": _SESSIONLESS,
        f"{prefix}clientInfo": {"name": "w", "version": "1"},
        f"{prefix}clientCapabilities": {"elicitation": {"form": {}}},
    }
    headers = {"MCP-Protocol-Version": _SESSIONLESS, "Mcp-Method": "tools/call", "Mcp-Name": "greet"}
    params: dict[str, Any] = {"name": "greet", "arguments": {}, "_meta": meta}

    async def way(number: int) -> Walk:
        async with _recorded() as walk:
            answer = await house.send("POST", headers, _request(number, "tools/call", params))
            asked = json.loads(answer.partition(b"\r\n\r\n")[2])["result"]
            (key,) = asked["inputRequests"]
            answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
            retry = {**params, "inputResponses": answers, "requestState": asked["requestState"]}
            answer = await house.send("POST", headers, _request(number, "tools/call", retry))
        assert b"hello" in answer  # noqa: S101
        return walk

    async with running(make_server()) as house:
        return await _usual(way)


async def resume(url: str) -> Walk:
    """Read the rest of a stream at another replica, which shares the Redis at `url` with the first."""

    async def way(number: int) -> Walk:
        whole = await first.post(number, {"name": "count", "_meta": {"progressToken": number}})
        position = whole.partition(b"id: ")[2].split()[0].decode()
        # The first replica has still to write that its reader is gone.
        await asyncio.sleep(_CLEAN_UP)
        async with _recorded() as walk:
            rest = await second.send("GET", {**first.headers, "Last-Event-ID": position})
        assert rest.count(b"\ndata: ") + rest.count(b"\ndata:{") >= 3, rest  # noqa: PLR2004, S101
        return walk

    async with running(make_server(url)) as first, running(make_server(url)) as second:
        return await _usual(way)


@contextmanager
def redis() -> Iterator[str]:
    """Run a Redis server for the block; yields its URL."""
    if shutil.which("redis-server") is None:
        raise RuntimeError("redis-server is missing: tools/install-system.sh installs it")
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        options = ["--port", str(port), "--save", "", "--dir", home]
        server = subprocess.Popen(["redis-server", *options], stdout=subprocess.PIPE)
        try:
            for line in server.stdout or ():
                if b"Ready to accept" in line:
                    break
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.communicate()


def walks() -> dict[str, Walk]:
    """Return the five walks by their names."""
    found: dict[str, Walk] = {}

    async def all_of_them(url: str) -> None:
        found["plain call"] = await plain_call(make_server())
        found["streamed call"] = await streamed_call()
        found["elicitation"] = await elicitation()
        found["resume"] = await resume(url)
        found["proxied call"] = await plain_call(program())

    with redis() as url:
        run(all_of_them(url), threads=8)
    return found


def main() -> None:
    """Print the figures, the steps of one walk, or everything for a test."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print all steps as JSON")
    parser.add_argument(
        "--steps", metavar="NAME", help="print the steps of one walk, by the name in the table"
    )
    options = parser.parse_args()
    found = walks()
    if options.json:
        print(json.dumps({name: walk.steps for name, walk in found.items()}))
    elif options.steps:
        for step in found[options.steps].steps:
            print(f"{'>' if step.crosses else ' '} {step.file} · {step.function}")
    else:
        print(f"{'message':15s} frames  entries  files  crossings")
        for name, walk in found.items():
            frames, entries, files, crossings = walk.figures()
            print(f"{name:15s} {frames:6d} {entries:8d} {files:6d} {crossings:10d}")


if __name__ == "__main__":
    main()
