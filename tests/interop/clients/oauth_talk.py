"""The calls of the Python clients to a protected server: one connection for each era, and on each the calls that the test names.

Each line of stdin is the name of a tool. The answer is one line of JSON: by era, the result or the error.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.interop.clients.conversation import config, say

Call = Callable[[str], Awaitable[dict[str, Any]]]
Connect = Callable[[str, str], AbstractAsyncContextManager[Call]]
"""Takes the URL and the era (`legacy` or `auto`), signs in, and yields a function that calls a tool."""
REDIRECT: Final = "http://127.0.0.1:3000/callback"


async def talk(connect: Connect) -> None:
    """Connect, and call until stdin ends."""
    url: str = config()["url"]
    async with AsyncExitStack() as stack:
        calls = {era: await stack.enter_async_context(connect(url, era)) for era in ("legacy", "auto")}
        say("connected")
        while tool := (await asyncio.to_thread(sys.stdin.readline)).strip():
            say(tool, **{era: await _attempt(call, tool) for era, call in calls.items()})


async def _attempt(call: Call, tool: str) -> dict[str, Any]:
    try:
        return await call(tool)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


async def agreed(url: str) -> dict[str, str]:
    """Let the user agree; return the parameters of the redirect."""
    browser: list[str] = config()["browser"]
    process = await asyncio.create_subprocess_exec(*browser, url, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    return {name: values[0] for name, values in parse_qs(urlsplit(printed.decode()).query).items()}
