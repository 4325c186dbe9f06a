"""A client of real processes that knows tasks."""

from typing import Any, Final

from tests.http.client import sessionless
from tests.support import until
from tests.workers.fleet import Fleet

TASKS: Final[dict[str, Any]] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


async def asked(process: Fleet, method: str, params: dict[str, Any]) -> Any:
    """Return the result of a request of 2026-07-28."""
    response = await sessionless(process.port, method, params, capabilities=TASKS)
    return (await response.answer())["result"]


async def begun(process: Fleet, seconds: float) -> str:
    """Begin an errand at a process; return its task's id."""
    task = await asked(process, "tools/call", {"name": "errand", "arguments": {"seconds": seconds}})
    task_id: str = task["taskId"]
    return task_id


async def ended(process: Fleet, task_id: str) -> Any:
    """Poll a task at a process until it has ended."""
    found: Any = {}

    async def has_ended() -> bool:
        nonlocal found
        found = await asked(process, "tasks/get", {"taskId": task_id})
        return bool(found["status"] != "working")

    await until(has_ended, every=0.05)
    return found
