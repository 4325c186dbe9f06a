"""A small Limpet server for the client's tests, in this process or in one of its own."""

import asyncio

from msgspec import Struct

from limpet import Context, Server, Settings, Times, ToolError

server = Server("small", settings=Settings(times=Times(task_poll=0.05)))


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def fanout(n: int, ctx: Context) -> str:
    """Ask the client's model n questions at once."""
    answers = await asyncio.gather(*(ctx.sample(str(number), max_tokens=10) for number in range(n)))
    return ",".join(answer.text for answer in answers)


@server.tool
async def interrogate(n: int, at_once: int, ctx: Context) -> int:
    """Ask n questions, so many at once, and count the answers."""
    places = asyncio.Semaphore(at_once)

    async def one(number: int) -> int:
        async with places:
            return int((await ctx.sample(str(number), max_tokens=10)).text == "yes")

    return sum(await asyncio.gather(*(one(number) for number in range(n))))


class Weather(Struct):
    """A typed result."""

    city: str
    degrees: float


begun: list[str] = []
"""Calls of `wait` that have begun."""
cancelled: list[str] = []
"""Calls of `wait` that were cancelled."""


@server.tool
async def weather(city: str) -> Weather:
    """Return structured content."""
    return Weather(city=city, degrees=21.5)


@server.tool
async def add(a: int, b: int) -> int:
    """Return a plain value, which is wrapped."""
    return a + b


@server.tool
async def fail() -> str:
    """Fail as tools fail."""
    raise ToolError("it broke")


@server.tool
async def wait(name: str, seconds: float) -> str:
    """Take so long."""
    begun.append(name)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        cancelled.append(name)
        raise
    return name


@server.tool
async def has_begun(name: str) -> bool:
    """Return whether a call of `wait` has begun."""
    return name in begun


@server.tool
async def was_cancelled(name: str) -> bool:
    """Return whether a call was cancelled."""
    return name in cancelled


@server.tool
async def steps(n: int, ctx: Context) -> str:
    """Tell progress n times, and log."""
    for step in range(n):
        await ctx.progress(step, n)
    await ctx.log("warning", "done")
    return "done"


@server.tool
async def change(ctx: Context) -> str:
    """Change the list of tools, and a resource."""
    server.notify_tools_changed()
    await server.resource_updated("small://thing")
    return "changed"


@server.tool(task="optional")
async def compute(seconds: float) -> str:
    """Take long enough to be a task."""
    await asyncio.sleep(seconds)
    return "computed"


@server.tool(task="optional")
async def survey(ctx: Context) -> str:
    """Ask while being a task."""
    return (await ctx.sample("well?", max_tokens=10)).text


@server.resource("small://thing")
async def thing() -> str:
    """Return a resource."""
    return "a thing"


@server.prompt
async def greet(name: str) -> str:
    """Return a prompt."""
    return f"Hello {name}"


@server.completion(prompt="greet", argument="name")
async def names(value: str) -> list[str]:
    """Return names."""
    return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]
