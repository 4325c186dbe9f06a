"""A client of the example servers on bare ASGI, in the same process; their messages are checked by the schema."""

import asyncio
import importlib.util
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from limpet import Server
from tests.asgi import Call, Peer
from tests.messages import initialize, notification, request
from tests.schema import Json, Recorder

EXAMPLES: Final = Path(__file__).parents[1] / "examples"

CAPABILITIES: Final[dict[str, Json]] = {
    "2025-03-26": {"sampling": {}, "roots": {}},
    "2025-06-18": {"sampling": {}, "roots": {}, "elicitation": {}},
    "2025-11-25": {"sampling": {}, "roots": {}, "elicitation": {"form": {}, "url": {}}},
}
FORM: Final = {
    "username": "ada",
    "email": "ada@example.com",
    "name": "Ada",
    "age": 36,
    "score": 1.5,
    "status": "pending",
    "verified": False,
    "ok": True,
    "confirm": True,
    "color": "green",
    "context": "bees",
    "untitledSingle": "option1",
    "titledSingle": "value1",
    "legacyEnum": "opt1",
    "untitledMulti": ["option1", "option2"],
    "titledMulti": ["value1"],
}


def fill_in(params: Json) -> Json:
    """Answer a form with the fields that it asks for."""
    names = params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: FORM[name] for name in names}}


ANSWERS: Final[dict[str, Callable[[Json], Json]]] = {
    "sampling/createMessage": lambda _params: {
        "role": "assistant",
        "content": {"type": "text", "text": "yes"},
        "model": "m",
    },
    "elicitation/create": fill_in,
    "roots/list": lambda _params: {"roots": [{"uri": "file:///home", "name": "home"}]},
}


class Client:
    """One session on a bare ASGI application; it answers asks."""

    def __init__(self, app: Recorder, version: str) -> None:
        self._version = version
        self._peer = Peer(app)
        self._peer.version = version
        self._ids = itertools.count(1)
        self._last_event_id = ""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.heard: asyncio.Queue[Json] = asyncio.Queue()
        """Notifications, in order of arrival."""

    async def open(self) -> Json:
        """Shake hands."""
        params = initialize(self._version, capabilities=CAPABILITIES[self._version])
        call = self._peer.post(request(next(self._ids), "initialize", params))
        [answer] = await self._read(call)
        self._peer.session = call.headers.get("mcp-session-id", "")
        await self._exchange(notification("notifications/initialized"))
        return answer["result"]

    async def result(self, method: str, params: Json = None) -> Json:
        """Make a request and return its result."""
        answer = await self.ask(method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def ask(self, method: str, params: Json = None) -> Json:
        """Make a request and return the message that answers it."""
        request_id = next(self._ids)
        meta = {"_meta": {"progressToken": f"token {request_id}"}}
        message = request(request_id, method, {**(params or {}), **meta})
        answers = [item for item in await self._exchange(message) if "method" not in item]
        if not answers:
            # The server closed the stream early; the answer waits where the last event left off.
            answers = [
                item for item in await self._read(self._peer.get(self._last_event_id)) if "method" not in item
            ]
        assert [item["id"] for item in answers] == [request_id]
        return answers[0]

    def listen(self) -> None:
        """Open the standalone stream."""
        self._spawn(self._read(self._peer.get()))

    async def close(self) -> None:
        """End the tasks that still run."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _exchange(self, message: Json) -> list[Json]:
        return await self._read(self._peer.post(message), late="method" not in message)

    async def _read(self, call: Call, *, late: bool = False) -> list[Json]:
        """Take every message of a response as it arrives; return them all.

        `late`: 400 is right too. An answer comes too late if another ask of the same call has failed.
        """
        messages: list[Json] = []
        async for message in call.arriving():
            messages.append(message)
            self._take(message)
        assert call.status in (200, 202) or (late and call.status == 400), call.status
        self._last_event_id = call.ids[-1] if call.is_stream and call.ids else self._last_event_id
        return messages

    def _take(self, message: Json) -> None:
        if "method" not in message:
            return
        if "id" not in message:
            self.heard.put_nowait(message)
            return
        result = ANSWERS[message["method"]](message.get("params"))
        self._spawn(self._exchange({"jsonrpc": "2.0", "id": message["id"], "result": result}))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Opened(NamedTuple):
    """A server, one client's session on it, and the messages that were sent there."""

    server: Server
    client: Client
    recorder: Recorder


def load(example: str) -> Server:
    """Return a fresh server from an example file, and from the files beside it that it imports."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)
    spec = importlib.util.spec_from_file_location(example, EXAMPLES / f"{example}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.server
    assert isinstance(server, Server)
    return server


@asynccontextmanager
async def session(example: str, version: str, **http: Any) -> AsyncIterator[Opened]:
    """Open a session with an example; in the end, hold every message it sent against the schema."""
    server = load(example)
    recorder = Recorder(server.asgi(**http))
    client = Client(recorder, version)
    try:
        opened = await client.open()
        assert opened["protocolVersion"] == version
        yield Opened(server, client, recorder)
    finally:
        await client.close()
        await server.engine.aclose()
    recorder.validate_all()
