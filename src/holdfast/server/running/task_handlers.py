"""The handlers of `tasks/get`, `tasks/update` and `tasks/cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine.task_requests import METHODS, answer
from holdfast.server.authoring.middleware import Handler
from holdfast.server.host import Host

if TYPE_CHECKING:
    from holdfast.engine.exchange import Exchange
    from holdfast.protocol.results import Result


class TaskHandlers:
    """The handlers of one server."""

    def __init__(self, server: Host) -> None:
        self._server = server

    def table(self) -> dict[str, Handler]:
        """Return method → handler."""
        return dict.fromkeys(METHODS, self.answer)

    async def answer(self, exchange: Exchange, params: dict[str, Any]) -> Result:  # noqa: ARG002
        """Answer a request for a task."""
        return await answer(self._server.engine.tasks, exchange)
