"""The lifespan events of ASGI: the host reports when a process begins to serve, and when it stops."""

from holdfast.engine.engine import Engine
from holdfast.engine.group import EngineGroup
from holdfast.fronts.http.request import Receive, Send


async def lifespan(engine: Engine | EngineGroup, receive: Receive, send: Send) -> None:
    """Start an engine, and close it when the host stops."""
    await receive()
    try:
        await engine.ensure_started()
    except Exception as error:  # noqa: BLE001 - reported to the server, which logs it and stops
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await engine.aclose()
    await send({"type": "lifespan.shutdown.complete"})
