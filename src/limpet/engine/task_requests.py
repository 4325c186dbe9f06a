"""The requests `tasks/get`, `tasks/update` and `tasks/cancel`, for tasks in the store."""

from typing import Final

from limpet.core.tasks import detailed
from limpet.engine.exchange import Exchange
from limpet.engine.tasks import Tasks
from limpet.errors import InvalidParams
from limpet.protocol.results import Result
from limpet.protocol.tasks import check_tasks

METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
_ACKNOWLEDGED: Final = Result()


async def answer(tasks: Tasks, exchange: Exchange) -> Result:
    """Return the state of a task, with its result, error or questions; or pass the client's answers to it.

    Or cancel it.

    Raises:
        MissingCapability: the client did not declare the extension.
        InvalidParams: a member is missing.
        UnknownTask: the caller has no such task.
        Busy: the store does not work, or has no room for the answers.
    """
    request, principal = exchange.request, exchange.caller.key
    check_tasks(exchange.session.record.capabilities)
    task_id = request.params.get("taskId")
    if type(task_id) is not str:
        raise InvalidParams("Invalid params: taskId must be a string")
    tasks.check(task_id, exchange.caller)
    if request.method == "tasks/get":
        return detailed(task_id, await tasks.get(task_id, principal), tasks.poll)
    if request.method == "tasks/cancel":
        await tasks.cancel(task_id, principal)
        return _ACKNOWLEDGED
    answers = request.params.get("inputResponses")
    if type(answers) is not dict:
        raise InvalidParams("Invalid params: inputResponses must be an object")
    await tasks.update(task_id, principal, answers)
    return _ACKNOWLEDGED
