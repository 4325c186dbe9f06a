# fastmcp lives in .peers, never in our environment.
"""The FastMCP servers of examples/from_fastmcp, served by FastMCP itself: `three.py PORT`, each at /NAME/mcp."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

NAMES = ("library", "travel", "gateway")
APPS = {name: import_module(f"examples.from_fastmcp.{name}_fastmcp").mcp.http_app() for name in NAMES}


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for app in APPS.values():
            await stack.enter_async_context(app.lifespan(app))
        yield


served = Starlette(routes=[Mount(f"/{name}", app) for name, app in APPS.items()], lifespan=lifespan)

if __name__ == "__main__":
    uvicorn.run(served, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
