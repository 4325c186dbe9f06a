"""Tools: listed with their schemas learned, called with typed results."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar, overload

from typing_extensions import override

from holdfast.client.base import Options, Progress, Requester, input_required
from holdfast.client.paging import Pages
from holdfast.client.results import InputNeeded, ToolCallResult, tool_call_result, typed
from holdfast.client.structured import shaped
from holdfast.client.tasks import Task, TaskState
from holdfast.errors import BadAnswer, ConfigError, HoldfastError, ToolError
from holdfast.protocol.listing import Tool
from holdfast.protocol.mirror import mirrored_parameters
from holdfast.protocol.results import ListToolsResult

T = TypeVar("T")


class Tools(Requester):
    """A client's tools."""

    _raise_on_error: bool
    _repeat_safe: bool

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._known: dict[str, Tool] = {}
        """The tools that were listed, by name."""
        self._current: set[str] = set()
        """The names that were looked up since the server last said that its tools have changed."""

    async def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """Return every tool, over all pages. `fresh` asks the server whatever its hints said."""
        return [tool async for tool in self.tools(fresh=fresh)]

    async def tools(self, *, fresh: bool = False) -> AsyncIterator[Tool]:
        """Yield every tool, asking for the next page when it is needed."""
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
        type: type[Any] | None = None,  # noqa: A002 - the word for it
        progress: Progress | None = None,
        timeout: float | None = None,
        idempotent: bool | None = None,
        raise_on_error: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolCallResult[Any]:
        """Call a tool and wait for its result, also where the server makes a task of it.

        With `type` the structured content is read as that type into `data`; without, `data` is what the tool's
        output schema says (see `shapes`), for which the tools are listed once if they were not. `idempotent` allows the call to
        be repeated when nobody knows whether it was executed; see also `repeat_safe`.

        Raises:
            ToolError: the tool failed (unless `raise_on_error` is False: then `is_error` says so).
            InputRefused: the client is in manual mode and the server wants input; use `start_tool`.
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
            )
            if isinstance(started, Task):
                return tool_call_result(await started.result(), type)
            if isinstance(started, InputNeeded):
                raise BadAnswer("the server wants input, and this client answers by hand: use start_tool")
            return started

        result: ToolCallResult[Any] = await self._within(timeout, "tools/call", finish())
        if type is None:
            await self._shape(name, result)
        if result.is_error and (self._raise_on_error if raise_on_error is None else raise_on_error):
            raise ToolError(result.text or f"tool {name} failed")
        return result

    async def start_tool(  # noqa: PLR0913 - what a caller may want to say of one call
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
        """Call a tool and return what the server gives first: its result, a task, or, by hand, what it wants to know.

        To answer by hand, call again with `after` (what came) and `responses` by the same keys.
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
            return Task(self, typed(result, TaskState, "tools/call"))
        return input_required(result) or tool_call_result(result, type)

    async def _shape(self, name: str, result: ToolCallResult[Any]) -> None:
        """Build a result's data by its tool's output schema. The result is there: nothing here makes it fail."""
        if result.structured_content is None or result.is_error:
            return
        if name not in self._current:
            self._current.add(name)
            try:
                async with asyncio.timeout(self._times.connect):
                    await self.list_tools()
            except (HoldfastError, TimeoutError) as error:
                self._observer.note("client.no_output_schema", tool=name, error=error)
        tool = self._known.get(name)
        result.data = shaped(result.structured_content, tool.output_schema if tool is not None else None)

    def task(self, task_id: str) -> Task:
        """Take up a task whose id was kept."""
        return Task(self, TaskState(task_id=task_id, status="working"))

    def _may_repeat(self, name: str) -> bool:
        """Say whether a tool's own annotations allow a repeat, where the client's author relies on them."""
        tool = self._known.get(name) if self._repeat_safe else None
        hints = tool.annotations if tool is not None else None
        return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)

    def _learn(self, tool: Tool) -> bool:
        """Remember a tool. False if its schema breaks a rule of 2026-07-28: then it is left out."""
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
