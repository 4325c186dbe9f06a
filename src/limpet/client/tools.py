"""Tools: list them, remember their schemas, call them with typed results."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar, overload

from typing_extensions import override

from limpet.client.base import ClientOptions, Progress, Requester, input_required
from limpet.client.paging import Pages
from limpet.client.results import InputNeeded, ToolCallResult, tool_call_result, typed
from limpet.client.structured import shaped
from limpet.client.tasks import Task, TaskState
from limpet.errors import BadAnswer, ConfigError, LimpetError, ToolError
from limpet.protocol.hand_over import COLLECT_PAUSE, ticket_of, without_ticket
from limpet.protocol.listing import Tool
from limpet.protocol.mirrored_headers import mirrored_parameters
from limpet.protocol.results import ListToolsResult
from limpet.protocol.sessionless import TASKS

T = TypeVar("T")


class Tools(Requester):
    """A client's tools."""

    _raise_on_error: bool
    _repeat_safe: bool

    def __init__(self, options: ClientOptions) -> None:
        super().__init__(options)
        self._known: dict[str, Tool] = {}
        """The tools that were listed, by name."""
        self._current: set[str] = set()
        """The names that were looked up since the server last reported that its tools have changed."""

    async def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """Return every tool, over all pages. `fresh` does not use the cache."""
        return [tool async for tool in self.tools(fresh=fresh)]

    async def tools(self, *, fresh: bool = False) -> AsyncIterator[Tool]:
        """Yield every tool, requesting the next page when it is needed."""
        pages = Pages(self, "tools/list", ListToolsResult, fresh=fresh)
        async for page in pages:
            for tool in page.tools:
                if self._learn(tool):
                    yield tool

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: Progress | None = None,
        timeout: float | None = None,
        idempotent: bool | None = None,
        raise_on_error: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolCallResult[Any]: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        type: type[T],
        progress: Progress | None = None,
        timeout: float | None = None,
        idempotent: bool | None = None,
        raise_on_error: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolCallResult[T]: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        type: type[Any] | None = None,  # noqa: A002 - the ordinary word
        progress: Progress | None = None,
        timeout: float | None = None,
        idempotent: bool | None = None,
        raise_on_error: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolCallResult[Any]:
        """Call a tool and wait for its result, also if it runs as a task: then progress comes from its status.

        A call that the server hands over (docs/how-to/slow-calls.md) is followed to its result too.

        With `type`, `data` is the structured content as that type. Without it, `data` follows the tool's output schema
        (see `structured`); for that, the tools are listed once if they were not. `idempotent` allows the call to be
        sent again when it is unknown whether it was executed; see also `repeat_safe`.

        Raises:
            ToolError: the tool failed (with `raise_on_error=False` it is not raised, and `is_error` is True).
            BadAnswer: the server asks for input, and the client has `auto_input=False`; use `start_tool`.
            McpError, ClientError, NotSent: as `request`.
        """

        async def finish() -> ToolCallResult[Any]:
            started = await self._start(
                name,
                arguments,
                type=type,
                progress=progress,
                timeout=float("inf"),
                idempotent=idempotent,
                meta=meta,
                follows=True,
            )
            if isinstance(started, Task):
                return await started.result(progress=progress)
            if isinstance(started, InputNeeded):
                raise BadAnswer(
                    "the server asks for input, and this client has auto_input=False: use start_tool"
                )
            return started

        result: ToolCallResult[Any] = await self._within(timeout, "tools/call", finish())
        if type is None:
            await self._shape(name, result)
        if result.is_error and (self._raise_on_error if raise_on_error is None else raise_on_error):
            raise ToolError(result.text or f"tool {name} failed")
        return result

    async def start_tool(  # noqa: PLR0913 - options of one call
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        type: type[Any] | None = None,  # noqa: A002
        progress: Progress | None = None,
        timeout: float | None = None,
        idempotent: bool | None = None,
        after: InputNeeded | None = None,
        responses: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolCallResult[Any] | Task | InputNeeded:
        """Call a tool and return the first response: a result, a task, or with `auto_input=False` the input it wants.

        To answer, call again with `after` (the InputNeeded) and `responses` by the same keys.
        """
        started = await self._start(
            name,
            arguments,
            type=type,
            progress=progress,
            timeout=timeout,
            idempotent=idempotent,
            after=after,
            responses=responses,
            meta=meta,
        )
        if type is None and isinstance(started, ToolCallResult):
            await self._shape(name, started)
        return started

    async def _start(  # noqa: PLR0913 - as `start_tool`
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        *,
        type: type[Any] | None,  # noqa: A002
        progress: Progress | None,
        timeout: float | None,
        idempotent: bool | None,
        meta: Mapping[str, Any] | None,
        after: InputNeeded | None = None,
        responses: Mapping[str, Any] | None = None,
        follows: bool = False,
    ) -> ToolCallResult[Any] | Task | InputNeeded:
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments or {})}
        if meta:
            params["_meta"] = dict(meta)
        if after is not None:
            params |= {"inputResponses": dict(responses or {})} if responses is not None else {}
            params |= {"requestState": after.state} if after.state is not None else {}
        result = await self.request(
            "tools/call",
            params,
            timeout=timeout,
            progress=progress,
            idempotent=self._may_repeat(name) if idempotent is None else idempotent,
        )
        if isinstance(result, dict) and result.get("resultType") == "task":
            return Task(self, typed(result, TaskState, "tools/call"), type)
        if follows:
            result = await self._collect(result, progress)
        return input_required(result) or tool_call_result(result, type)

    async def _collect(self, result: Any, progress: Progress | None) -> Any:
        """Return the result of a call. If the server has handed the call over, collect it."""
        while (ticket := ticket_of(result)) is not None:
            params = {"name": ticket.collect, "arguments": {"ticket": ticket.ticket}}
            result = await self.request(
                "tools/call", params, timeout=float("inf"), progress=progress, idempotent=True
            )
            if ticket_of(result) is not None:
                await asyncio.sleep(COLLECT_PAUSE)
        return result

    async def _shape(self, name: str, result: ToolCallResult[Any]) -> None:
        """Set a result's data by its tool's output schema. A failure here is noted and does not fail the call."""
        if result.structured_content is None or result.is_error:
            return
        if name not in self._current:
            self._current.add(name)
            try:
                async with asyncio.timeout(self._times.connect):
                    await self.list_tools()
            except (LimpetError, TimeoutError) as error:
                self._observer.note("client.no_output_schema", tool=name, error=error)
        tool = self._known.get(name)
        schema = tool.output_schema if tool is not None else None
        result.data = shaped(result.structured_content, None if schema is None else without_ticket(schema))

    def declare_tasks(self) -> None:
        """Declare from now on that this client accepts tasks, if it was made with `capabilities={"extensions": {}}`."""
        self._profile.capabilities["extensions"] = {TASKS: {}}

    def task(self, task_id: str) -> Task:
        """Return the task with an id."""
        return Task(self, TaskState(task_id=task_id, status="working"))

    def _may_repeat(self, name: str) -> bool:
        """True if the tool's annotations allow a repeat and the client was made with `repeat_safe`."""
        tool = self._known.get(name) if self._repeat_safe else None
        hints = tool.annotations if tool is not None else None
        return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)

    def _learn(self, tool: Tool) -> bool:
        """Remember a tool. False if its schema breaks a rule of 2026-07-28: the tool is left out."""
        if self.agreed.is_sessionless:
            try:
                self._mirrored[tool.name] = mirrored_parameters(tool.input_schema, tool.name)
            except ConfigError as error:
                self._observer.note("client.tool_left_out", tool=tool.name, error=error)
                return False
        self._known[tool.name] = tool
        self._current.add(tool.name)
        return True

    @override
    async def _relearn_tools(self) -> None:
        await self.list_tools(fresh=True)

    @override
    def _doubt_tools(self) -> None:
        self._current.clear()
