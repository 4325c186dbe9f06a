"""The server that foreign clients are tried against: one tool for each thing a client can do, in either era.

It counts its work and writes the counts down when it stops, so that tests can compare them with the
client's output.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypedDict, cast

from limpet import Context, Image, McpError, Server, SessionView, Settings, Times, ToolError
from limpet.config import Eras
from limpet.errors import AskTimeout

COUNTS: Final = "LIMPET_INTEROP_COUNTS"
"""The environment variable that names the directory for the counts: a client may start more than one process."""
ERAS: Final = "LIMPET_INTEROP_ERAS"
"""The environment variable that says which protocols are served."""
PIXEL: Final = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
NOTE: Final = "note://shared"
POEM: Final = "note://poem"
PATIENCE: Final = 60.0
WAIT: Final = 0.02

counts: Counter[str] = Counter()
heard = asyncio.Semaphore(0)
hang_cancelled = asyncio.Event()


@asynccontextmanager
async def counting() -> AsyncIterator[None]:
    """Write the counts down at the end."""
    yield
    if COUNTS in os.environ:
        Path(os.environ[COUNTS], f"{os.getpid()}.json").write_text(json.dumps(counts), encoding="utf-8")


server = Server(
    "interop",
    version="1.2.3",
    instructions="Try everything.",
    lifespan=counting,
    eras=cast("Eras", os.environ.get(ERAS, "both")),
    # A short delay, so that a client that was cut comes back within the test's patience.
    settings=Settings(times=Times(retry=(0.05, 0.1))),
)


@server.on_opened
async def opened(session: SessionView) -> None:
    counts["opened"] += 1
    counts[f"opened by {session.client_info.name}"] += 1


@server.on_closed
async def closed(session: SessionView, reason: str) -> None:
    counts[f"closed: {reason}"] += 1


class Weather(TypedDict):
    """A structured result."""

    city: str
    degrees: float
    warnings: list[str]


class Guest(TypedDict):
    """A form."""

    name: str
    seats: int


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    counts["echo"] += 1
    return text


@server.tool
async def image() -> Image:
    """Return a picture."""
    return Image(PIXEL, mime_type="image/png")


@server.tool
async def weather(city: str) -> Weather:
    """Return structured content."""
    return {"city": city, "degrees": 21.5, "warnings": ["wind"]}


@server.tool
async def fail() -> str:
    """Fail in a way the model shall see."""
    raise ToolError("the kettle is empty")


@server.tool
async def late_error(ctx: Context) -> str:
    """Refuse with a protocol error, after the answer has become a stream."""
    counts["late_error"] += 1
    await ctx.info("about to refuse")
    raise McpError(-32077, "refused late")


@server.tool
async def ticks(n: int, ctx: Context, *, acknowledged: bool = False) -> str:
    """Tell progress n times; end when the client says that it got the last, if it says so."""
    counts["ticks"] += 1
    for i in range(1, n + 1):
        await ctx.progress(i, total=n, message=f"tick {i}")
        await asyncio.sleep(WAIT)
    await last_heard(acknowledged=acknowledged)
    return f"{n} done"


async def last_heard(*, acknowledged: bool) -> None:
    """Wait until the client has the last progress: the TypeScript clients drop it if they read it in one piece with the result."""
    if acknowledged:
        await heard.acquire()


@server.tool
async def walk(ctx: Context, *, acknowledged: bool = False) -> str:
    """Tell progress six times, the second and fourth only when the client says that it got the one before.

    Those two are where the test cuts. A client can only resume a connection on which it has read an
    event: the TypeScript clients forget the position of the connection before (typescript-sdk #2745).
    """
    counts["walk"] += 1
    for i in range(1, 7):
        if i in {2, 4}:
            await heard.acquire()
        await ctx.progress(i, total=6, message=f"step {i}")
        await asyncio.sleep(WAIT)
    await last_heard(acknowledged=acknowledged)
    return "walked"


@server.tool
async def got_it() -> str:
    """Let the walk continue."""
    heard.release()
    return "continue"


@server.tool
async def chatter(ctx: Context) -> str:
    """Log at three levels."""
    await ctx.debug("too quiet")
    await ctx.info({"step": 1})
    await ctx.error("loud")
    return "said"


@server.tool
async def fanout(n: int, ctx: Context) -> str:
    """Ask the client's model n questions at once."""
    counts["fanout"] += 1
    asks = [ctx.sample(f"question {i}", max_tokens=10) for i in range(n)]
    return ",".join([getattr(result.content, "text", "?") for result in await asyncio.gather(*asks)])


@server.tool
async def impatient(ctx: Context) -> str:
    """Ask the user, and do not wait for one who is slow."""
    counts["impatient"] += 1
    try:
        return (await ctx.elicit("Quickly?", Guest, timeout=WAIT)).action
    except AskTimeout:
        return "too slow"


@server.tool
async def book(ctx: Context) -> str:
    """Ask the user to fill in a form."""
    counts["book"] += 1
    answer = await ctx.elicit("Who comes?", Guest)
    if answer.data is None:
        return answer.action
    return f"{answer.action}: {answer.data['name']} takes {answer.data['seats']}"


@server.tool
async def places(ctx: Context) -> str:
    """Ask where the client works."""
    counts["places"] += 1
    return ",".join(root.uri for root in await ctx.roots())


@server.tool
async def learn() -> str:
    """Change the list of tools, and change it back."""
    server.add_tool(image, name="learned")
    server.remove_tool("learned")
    return "learned"


@server.tool
async def touch(ctx: Context) -> str:
    """Say that the note has changed."""
    await ctx.resource_updated(NOTE)
    return "touched"


@server.tool
async def announce(text: str, ctx: Context) -> str:
    """Log outside of any request, then say that the note has changed."""
    await ctx.session.log("warning", text)
    await asyncio.sleep(WAIT)
    await ctx.resource_updated(NOTE)
    return "announced"


@server.tool
async def hang_up(ctx: Context, *, acknowledged: bool = False) -> str:
    """End the connection in the middle of the call."""
    counts["hang_up"] += 1
    await ctx.progress(1, total=2, message="before")
    await ctx.close_stream()
    await asyncio.sleep(WAIT)
    await ctx.progress(2, total=2, message="after")
    await last_heard(acknowledged=acknowledged)
    return "still here"


@server.tool
async def hang(ctx: Context) -> str:
    """Wait to be cancelled."""
    counts["hang"] += 1
    await ctx.progress(1, message="waiting")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        counts["hang cancelled"] += 1
        hang_cancelled.set()
        raise
    return "never"


@server.tool
async def hung() -> str:
    """Say whether the call that waits to be cancelled has been, while the server still runs."""
    await asyncio.wait_for(hang_cancelled.wait(), PATIENCE)
    return "cancelled"


@server.tool
async def slow(seconds: float, text: str) -> str:
    """Return the text later."""
    counts["slow"] += 1
    await asyncio.sleep(seconds)
    return text


@server.resource(NOTE)
async def note() -> str:
    """The note that all clients share."""
    return "hello from the note"


@server.resource(POEM)
async def poem(ctx: Context) -> str:
    """Writes the text of the client's model when it is read."""
    counts["poem"] += 1
    return (await ctx.sample("question of a poem", max_tokens=10)).text


@server.resource("note://{name}/page")
async def page(name: str) -> str:
    """One page."""
    return f"page of {name}"


@server.prompt
async def greet(name: str) -> str:
    """Greet a person."""
    return f"Say hello to {name}."


@server.prompt
async def toast(ctx: Context) -> str:
    """Ask whom to toast."""
    counts["toast"] += 1
    answer = await ctx.elicit("To whom?", Guest)
    return f"A toast to {answer.data['name'] if answer.data else 'all'}."


@server.completion(prompt="greet", argument="name")
async def names(value: str) -> list[str]:
    """Complete a name."""
    return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]
