# mypy: disable-error-code="import-not-found,valid-type,untyped-decorator"
"""The common parts of the hosted objects of all frameworks: they write the same tools in the same way."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.auth.middleware.auth_context import get_access_token
from pydantic import BaseModel


class Name(BaseModel):
    """A form."""

    name: str


class Color(BaseModel):
    """Another form."""

    color: str


class Counts(dict[str, int]):
    """How often something happened in this process, and a place where calls meet."""

    def __init__(self) -> None:
        super().__init__(entered=0, runs=0)
        self._here: dict[str, asyncio.Barrier] = {}

    async def meet(self, name: str) -> None:
        """Return when three calls with this name wait here."""
        await self._here.setdefault(name, asyncio.Barrier(3)).wait()


counts = Counts()
late: list[tuple[asyncio.Event, asyncio.Task[str]]] = []


class Verifier:
    """A verifier that knows no token."""

    async def verify_token(self, _token: str) -> None:
        return


async def sampled(ctx: Any, types: Any, about: object) -> str:
    """Ask the client's model for a line; return its text."""
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=f"about {about}"))
    result = await ctx.session.create_message([asked], max_tokens=10)
    text: str = result.content.text
    return text


async def failure(way: str) -> None:
    """Cancel this task, cancel it by a scope that is never left, exit, or raise a cancellation."""
    match way:
        case "task":
            asyncio.current_task().cancel()  # type: ignore[union-attr]
        case "scope":
            scope = anyio.CancelScope()
            scope.__enter__()
            scope.cancel()
        case "exit":
            sys.exit(3)
        case _:
            pass
    await asyncio.sleep(0)
    raise asyncio.CancelledError


@asynccontextmanager
async def lifespan(_server: Any) -> AsyncIterator[dict[str, int]]:
    counts["entered"] += 1
    yield counts


def define_tools(mcp: Any, Context: Any, types: Any) -> None:  # noqa: N803 - it is a class
    """Register the tools as an author would. `Context` and `types` are those of the framework."""
    define_asking_tools(mcp, Context, types)

    @mcp.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @mcp.tool()
    async def process() -> int:
        """Return the number of this process."""
        return os.getpid()

    @mcp.tool()
    async def die() -> str:
        """End the process in the middle of a call."""
        sys.stderr.write("the disk is full\n")
        sys.stderr.flush()
        os._exit(3)

    @mcp.tool()
    async def entered(ctx: Context) -> int:
        found: int = ctx.request_context.lifespan_context["entered"]
        return found

    @mcp.tool()
    async def who(ctx: Context) -> list[str]:
        """Return the user, as `get_access_token` says, and a header of the request."""
        token = get_access_token()
        request = ctx.request_context.request
        return [
            "no user" if token is None else f"{token.subject} {token.token} {' '.join(token.scopes)}",
            "no request" if request is None else request.headers.get("x-color", "no color"),
        ]

    @mcp.tool()
    async def fail(way: str) -> None:
        """Fail in a way that the author's code did not intend."""
        await failure(way)

    @mcp.tool()
    async def meet(name: str) -> str:
        """Return when three calls are here."""
        await counts.meet(name)
        return name

    @mcp.tool()
    async def ticks(n: int, ctx: Context) -> str:
        for step in range(1, n + 1):
            await ctx.report_progress(step, n)
            await asyncio.sleep(0.02)
        return f"{n} ticks"


def define_asking_tools(mcp: Any, Context: Any, types: Any) -> None:  # noqa: N803 - it is a class
    """Register the tools that ask the client."""

    @mcp.tool()
    async def greet(color: str, ctx: Context) -> str:
        """Ask the user and the model, with questions that name the color."""
        answer = await ctx.elicit(f"question {color}", Name)
        return f"{color} {answer.data.name} {await sampled(ctx, types, color)}"

    @mcp.tool()
    async def linger(ctx: Context) -> str:
        """Leave a task behind that asks the user after this call has ended."""

        async def ask() -> str:
            await released.wait()
            try:
                await ctx.elicit("a late question", Name)
            except Exception:
                return "refused"
            return "answered"

        released = asyncio.Event()
        late.append((released, asyncio.create_task(ask())))
        return "ended"

    @mcp.tool()
    async def outcome() -> str:
        """Let the task of `linger` ask, and return the result."""
        released, task = late.pop()
        released.set()
        return await task

    @mcp.tool()
    async def interview(ctx: Context) -> dict[str, Any]:
        counts["runs"] += 1
        name = await ctx.elicit("What is your name?", Name)
        color = await ctx.elicit("Which color?", Color)
        lines = await asyncio.gather(*(sampled(ctx, types, number) for number in range(5)))
        return {"name": name.data.name, "color": color.data.color, "lines": lines, "runs": counts["runs"]}
