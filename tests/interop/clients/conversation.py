"""The conversation of every Python client with the server, written once for both generations of the official SDK.

They name their fields differently but travel alike: results are compared as they travel. Each
step prints one line of JSON, as soon as it is done.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

NOTE: Final = "note://shared"
HOME: Final = "file:///home/ada"
FANOUT: Final = 5
PATIENCE: Final = 60.0
Cancel = Callable[[], Awaitable[None]]


def config() -> dict[str, Any]:
    """Return the parameters of the test."""
    asked: dict[str, Any] = json.loads(sys.argv[1])
    return asked


def say(step: str, **found: object) -> None:
    print(json.dumps({"step": step, **found}), flush=True)


def wire(model: Any) -> Any:
    """Return a model as it travels."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Heard:
    """The notifications of the server, and the answers to its asks."""

    def __init__(self, types: Any, *, one_by_one: bool = False) -> None:
        self._types = types
        self._patience = 0.2 if one_by_one else 5.0
        self.logs: list[list[Any]] = []
        self.updates: list[str] = []
        self.changed = asyncio.Event()
        self.asked = 0
        self.peak = 0
        self._asking = 0
        self._all_asked = asyncio.Event()

    async def log(self, params: Any) -> None:
        self.logs.append([params.level, params.data])
        self.changed.set()

    async def message(self, message: Any) -> None:
        notification = getattr(message, "root", message)
        if getattr(notification, "method", "") == "notifications/resources/updated":
            self.updates.append(str(notification.params.uri))
            self.changed.set()

    async def sample(self, _context: Any, params: Any) -> Any:
        """Answer when all questions are here, or when no more come: this client may take them one by one."""
        self.asked += 1
        self._asking += 1
        self.peak = max(self.peak, self._asking)
        if self._asking == FANOUT:
            self._all_asked.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_asked.wait(), self._patience)
        self._asking -= 1
        question = wire(params)["messages"][0]["content"]["text"]
        answer = self._types.TextContent(type="text", text=question.replace("question", "answer"))
        return self._types.CreateMessageResult(role="assistant", content=answer, model="test")

    async def elicit(self, _context: Any, params: Any) -> Any:
        schema = wire(params)["requestedSchema"]
        assert sorted(schema["properties"]) == ["name", "seats"], schema
        if wire(params)["message"] == "Quickly?":
            # Real time is the subject: the tool waits for less. A client that is cancelled here does not answer.
            await asyncio.sleep(0.5)
        return self._types.ElicitResult(action="accept", content={"name": "Ada", "seats": 2})

    async def roots(self, _context: Any) -> Any:
        return self._types.ListRootsResult(roots=[self._types.Root(uri=HOME)])

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


async def converse(session: Any, types: Any, heard: Heard, cancel: Cancel) -> None:
    """Do everything once."""
    await lists(session, types)
    await calls(session)
    await notifications(session, heard)
    await asks(session, heard)
    await standalone(session, heard)
    await broken(session)
    await refused(session)
    await cancelled(session, cancel)
    await parallel(session)
    await session.send_ping()
    say("ping", uris=heard.updates)


async def lists(session: Any, types: Any) -> None:
    say("tools", names=sorted(tool.name for tool in (await session.list_tools()).tools))
    say("resources", uris=[str(found.uri) for found in (await session.list_resources()).resources])
    templates = wire(await session.list_resource_templates())["resourceTemplates"]
    say("templates", uris=[template["uriTemplate"] for template in templates])
    say("prompts", names=[prompt.name for prompt in (await session.list_prompts()).prompts])
    say("read", text=wire(await session.read_resource(NOTE))["contents"][0]["text"])
    prompt = wire(await session.get_prompt("greet", {"name": "Ada"}))
    say("prompt", text=prompt["messages"][0]["content"]["text"])
    ref = types.PromptReference(type="ref/prompt", name="greet")
    found = await session.complete(ref, {"name": "name", "value": "A"})
    say("complete", values=found.completion.values)


async def calls(session: Any) -> None:
    say("echo", result=wire(await session.call_tool("echo", {"text": "höhö \u2028 ✓"})))
    say("image", result=wire(await session.call_tool("image", {})))
    say("structured", result=wire(await session.call_tool("weather", {"city": "Bonn"})))
    say("failed", result=wire(await session.call_tool("fail", {})))


async def notifications(session: Any, heard: Heard) -> None:
    say("progress", **await told(session, "ticks", {"n": 3}))
    await session.set_logging_level("info")
    await session.call_tool("chatter", {})
    await heard.until(lambda: len(heard.logs) >= 2)
    say("logs", logs=heard.logs)
    heard.logs.clear()


ACKNOWLEDGED = {"step 1", "step 3", "step 6", "tick 3", "after"}


async def told(
    session: Any, tool: str, arguments: dict[str, Any], *, acknowledges: bool = True
) -> dict[str, Any]:
    """Call a tool and note the progress it tells; say so where it waits to hear that."""
    notes: list[list[Any]] = []
    replies: list[asyncio.Future[Any]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        notes.append([done, total, message])
        if message in ACKNOWLEDGED:
            replies.append(asyncio.ensure_future(session.call_tool("got_it", {})))

    if acknowledges:
        arguments = {**arguments, "acknowledged": True}
    result = await session.call_tool(tool, arguments, progress_callback=progress)
    await asyncio.gather(*replies)
    return {"told": notes, "text": wire(result)["content"][0]["text"]}


async def asks(session: Any, heard: Heard) -> None:
    result = wire(await session.call_tool("fanout", {"n": FANOUT}))
    say("fanout", text=result["content"][0]["text"], asked=heard.asked, peak=heard.peak)
    say("elicit", text=wire(await session.call_tool("book", {}))["content"][0]["text"])
    say("late", text=wire(await session.call_tool("impatient", {}))["content"][0]["text"])


async def standalone(session: Any, heard: Heard) -> None:
    """Receive a change; then receive another whose stream is cut just before (over HTTP)."""
    await session.subscribe_resource(NOTE)
    await session.call_tool("touch", {})
    await heard.until(lambda: bool(heard.updates))
    say("updated", uris=heard.updates)
    await session.call_tool("announce", {"text": "cut standalone"})
    await heard.until(lambda: len(heard.updates) >= 2 and bool(heard.logs))
    say("announced", uris=heard.updates, logs=heard.logs)
    await session.unsubscribe_resource(NOTE)
    await session.call_tool("touch", {})


async def broken(session: Any) -> None:
    """Make two calls whose connections do not last: the test cuts one (over HTTP), the server ends the other."""
    say("cut", **await told(session, "walk", {}))
    say("hung up", **await told(session, "hang_up", {}))


async def refused(session: Any) -> None:
    try:
        await session.call_tool("late_error", {})
    except Exception as error:
        found = getattr(error, "error", error)
        say("late error", code=getattr(found, "code", None), message=getattr(found, "message", str(found)))


async def cancelled(session: Any, cancel: Cancel) -> None:
    """Start a call that never ends, and cancel it once it runs."""
    runs = asyncio.Event()

    async def progress(_done: float, _total: float | None, _message: str | None) -> None:
        runs.set()

    session_call = asyncio.ensure_future(session.call_tool("hang", {}, progress_callback=progress))
    await asyncio.wait_for(runs.wait(), PATIENCE)
    await cancel()
    session_call.cancel()
    outcome = await asyncio.gather(session_call, return_exceptions=True)
    say("cancelled", outcome=type(outcome[0]).__name__)


async def parallel(session: Any) -> None:
    """Call twenty times at once; long enough to notice a client that reconnects without success."""
    results = await asyncio.gather(
        *(session.call_tool("slow", {"seconds": 0.6, "text": f"call {i}"}) for i in range(20))
    )
    say("parallel", texts=[wire(result)["content"][0]["text"] for result in results])
