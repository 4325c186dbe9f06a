"""The handlers of `tasks/get`, `tasks/update` and `tasks/cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.core.tasks import detailed
from holdfast.errors import InvalidParams
from holdfast.protocol.tasks import DetailedTask, check_tasks
from holdfast.protocol.types import Result
from holdfast.server.authoring.middleware import Handler
from holdfast.server.host import Host

if TYPE_CHECKING:
    from holdfast.engine.exchange import Exchange

Params = dict[str, Any]
_ACKNOWLEDGED: Final = Result()


class TaskHandlers:
    """The handlers of one server."""

    def __init__(self, server: Host) -> None:
        self._server = server

    def table(self) -> dict[str, Handler]:
        """Return method → handler."""
        return {"tasks/get": self.get, "tasks/update": self.update, "tasks/cancel": self.cancel}

    async def get(self, exchange: Exchange, params: Params) -> DetailedTask:
        """Return the state of a task, with its result, error or questions."""
        task_id = _task_id(exchange, params)
        tasks = self._server.engine.tasks
        state = await tasks.get(task_id, exchange.caller.key)
        return detailed(task_id, state, tasks.poll)

    async def update(self, exchange: Exchange, params: Params) -> Result:
        """Pass the client's answers to a task."""
        task_id = _task_id(exchange, params)
        answers = params.get("inputResponses")
        if type(answers) is not dict:
            raise InvalidParams("Invalid params: inputResponses must be an object")
        await self._server.engine.tasks.update(task_id, exchange.caller.key, answers)
        return _ACKNOWLEDGED

    async def cancel(self, exchange: Exchange, params: Params) -> Result:
        """Cancel a task."""
        await self._server.engine.tasks.cancel(_task_id(exchange, params), exchange.caller.key)
        return _ACKNOWLEDGED


def _task_id(exchange: Exchange, params: Params) -> str:
    check_tasks(exchange.session.record.capabilities)
    task_id = params.get("taskId")
    if type(task_id) is not str:
        raise InvalidParams("Invalid params: taskId must be a string")
    return task_id
