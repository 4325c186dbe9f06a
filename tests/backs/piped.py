"""A program of 2025 at the other end of a pipe. The test says each of its messages: it cancels no question by itself."""

import asyncio
import json
from typing import Any

from typing_extensions import override

from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.ports import SilentObserver
from limpet.upstream.connectors import Connector
from limpet.upstream.duplex_link import DuplexLink
from limpet.upstream.link import Receiver, UpstreamLink
from limpet.upstream.settings import ClientLimits
from tests.backs.behind import TIMES
from tests.support import until

Json = dict[str, Any]


class Pipe:
    """One run of the program."""

    exit_status: int | None = None
    last_words = "the test ended it"

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        """By the name of the tool: the ids of the calls."""
        self.cancelled: list[int] = []
        self.answers: dict[str, Json] = {}
        """By the id of the question: the responses."""
        self._out: asyncio.Queue[bytes] = asyncio.Queue()

    async def read(self) -> bytes:
        return await self._out.get()

    async def write(self, message: bytes) -> None:
        await asyncio.sleep(0)
        decoded = json.loads(message)
        match decoded.get("method"):
            case "initialize":
                self.say(
                    id=decoded["id"], result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
                )
            case "tools/call":
                self.calls[decoded["params"]["name"]] = decoded["id"]
            case "notifications/cancelled":
                self.cancelled.append(decoded["params"]["requestId"])
            case None:
                self.answers[decoded["id"]] = decoded
            case _:
                pass

    async def aclose(self) -> None:
        self._out.put_nowait(b"")

    def say(self, **message: Any) -> None:
        self._out.put_nowait(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def ask(self, *names: str) -> None:
        """Ask these questions; the name is the id and the text."""
        for name in names:
            self.say(id=name, method="elicitation/create", params={"message": name, "requestedSchema": {}})

    def finish(self, call: str) -> None:
        """Answer a call."""
        self.say(id=self.calls[call], result={"content": [], "call": call})

    async def called(self, *calls: str) -> None:
        """Wait for these calls."""
        await until(lambda: set(calls) <= self.calls.keys())

    async def answered(self, question: str) -> Json:
        """Wait for the response to a question."""
        await until(lambda: question in self.answers)
        return self.answers[question]


class Program(Target):
    """The program as a target. Each connection is another run."""

    def __init__(self, limits: ClientLimits | None = None) -> None:
        super().__init__("program", version="sessions", limits=limits or ClientLimits(), times=TIMES)
        self.pipes: list[Pipe] = []

    @property
    def pipe(self) -> Pipe:
        """The only run."""
        [pipe] = self.pipes
        return pipe

    def connector(self, client: UpstreamClient) -> Connector:
        return _Connector(self)

    def key(self, client: UpstreamClient) -> bytes:
        return b""


class _Connector(Connector):
    probe_seconds = 5.0

    def __init__(self, program: Program) -> None:
        self._program = program

    @override
    async def connect(self, receiver: Receiver) -> UpstreamLink:
        pipe = Pipe()
        self._program.pipes.append(pipe)
        return DuplexLink(pipe, receiver, SilentObserver())
