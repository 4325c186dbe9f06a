"""The tools in fastmcp. As a program it serves by its own HTTP server on $PORT; Limpet hosts the object `mcp`.

With RESUME=memory or RESUME=redis://… it keeps events there in its own event store, so that a client can resume.
"""

import os

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.server.event_store import EventStore
from peer_tools import add_tools

mcp = FastMCP("bench")
add_tools(mcp, Context)

if __name__ == "__main__":
    place = os.environ.get("RESUME", "")
    storage = None
    if place.startswith("redis:"):
        from key_value.aio.stores.redis import RedisStore

        storage = RedisStore(url=place)
    app = mcp.http_app(
        json_response=os.environ.get("MODE") != "sse",
        event_store=EventStore(storage, max_events_per_stream=2_000) if place else None,
    )
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="error", lifespan="on")
