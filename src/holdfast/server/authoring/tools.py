"""Tools: what is listed of them, and the shortest way through a call of one.

Everything that can be decided at registration is: a call binds the arguments, awaits the
function, makes the result. A context is made only for functions that want one.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, Self, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engine.exchange import Exchange
from holdfast.errors import ConfigError, InvalidArguments, ToolError, UrlElicitationRequired
from holdfast.protocol.mirror import Mirrored, mirrored_parameters
from holdfast.protocol.types import (
    CallToolResult,
    Icon,
    InputRequiredResult,
    Meta,
    Tool,
    ToolAnnotations,
)
from holdfast.server.catalog.catalog import Layer
from holdfast.server.catalog.server_controls import ServerControls
from holdfast.server.context.context import Context
from holdfast.server.context.input_rounds import open_pages_first, run_input_rounds
from holdfast.server.context.task_calls import Run, TaskMode, as_task
from holdfast.server.functions.client_errors import failed, failed_call
from holdfast.server.functions.content import to_result
from holdfast.server.functions.depends import Injector
from holdfast.server.functions.input_required import InputRequired
from holdfast.server.functions.options import check_options
from holdfast.server.functions.registered_function import RegisteredFunction
from holdfast.server.functions.signature import Callee
from holdfast.server.host import Host

NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""What the specification asks of a tool's name."""


class ToolOptions(TypedDict, total=False):
    """What a tool may be registered with, besides its function."""

    name: str
    title: str
    description: str
    annotations: ToolAnnotations
    icons: list[Icon]
    meta: Meta
    timeout: float
    """Seconds after which a call is given up as a failed result."""
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | Literal[False]
    enabled: bool
    task: TaskMode
    """Calls run as tasks where the client (2026-07-28) takes one; `required`: others are refused."""
    task_by_hand: bool
    """A call becomes a task where its handler says `await ctx.start_task()`, and not at once."""


class ToolEntry(Struct, frozen=True):
    """A tool as registered."""

    listed: Tool
    run: Run
    mirrored: tuple[Mirrored, ...] = ()
    """Parameters that headers repeat."""
    task: TaskMode | None = None
    """Whether its calls may, or must, become tasks."""
    within: tuple[Layer, ...] = ()
    """The included servers that it comes through."""

    @property
    def key(self) -> str:
        return self.listed.name

    def included(self, key: str, server: object) -> Self:
        within = (Layer(server, self.key), *self.within)
        return replace(self, listed=replace(self.listed, name=key), within=within)


def tool_entry(fn: Callable[..., Any], options: ToolOptions, owner: Host) -> ToolEntry:
    """Make a tool of a function.

    Raises:
        TypeError: the function cannot be one, or an option is none.
        ConfigError: its name, its timeout or its way to be a task cannot be one.
    """
    check_options(options, ToolOptions, "a tool")
    function = RegisteredFunction(
        fn,
        name=options.get("name"),
        title=options.get("title"),
        description=options.get("description"),
        input_schema=options.get("input_schema"),
        output_schema=options.get("output_schema"),
    )
    if NAME.fullmatch(function.name) is None:
        raise ConfigError(
            f"{function.name!r} cannot name a tool: 1 to 128 letters, digits, underscores, dots and hyphens can"
        )
    listed = Tool(
        name=function.name,
        title=function.title,
        description=function.description or None,
        input_schema=function.input_schema,
        output_schema=function.output_schema,
        annotations=options.get("annotations"),
        icons=options.get("icons"),
        meta=options.get("meta"),
    )
    call = function.call
    if (seconds := options.get("timeout")) is not None:
        call = _limited(call, function.name, seconds)
    mirrored = mirrored_parameters(function.input_schema, function.name)
    task, by_hand = options.get("task"), options.get("task_by_hand", False)
    run = as_task(_runner(function, call, owner), function.name, task, by_hand=by_hand)
    return ToolEntry(listed, run, mirrored, task)


def needs_context(function: RegisteredFunction) -> bool:
    """Tell whether a call needs a context: the function takes one, or something it depends on may."""
    return function.wants_context or isinstance(function.call, Injector)


def _runner(function: RegisteredFunction, call: Callee, owner: Host) -> Run:
    bind, structure, wraps_result = function.bind, function.structure, function.wraps_result
    wants_context = needs_context(function)

    def again(exchange: Exchange, arguments: dict[str, Any], server: ServerControls) -> Awaitable[object]:
        return call(bind(arguments), Context(exchange, server, owner) if wants_context else None)

    async def run(
        exchange: Exchange, arguments: dict[str, Any], server: ServerControls
    ) -> CallToolResult | InputRequiredResult:
        try:
            kwargs = bind(arguments)
        except InvalidArguments as error:
            # The model, not the client, made them: told in a result, it can correct itself.
            return failed(error.message)
        try:
            try:
                value = await call(kwargs, Context(exchange, server, owner) if wants_context else None)
            except UrlElicitationRequired as error:
                value = open_pages_first(error, exchange)
            if isinstance(value, InputRequired):
                value = await run_input_rounds(
                    value, exchange, server, partial(again, exchange, arguments, server)
                )
                if isinstance(value, InputRequiredResult):
                    return value
            return to_result(value, structure, wraps_result=wraps_result)
        except Exception as error:  # noqa: BLE001 - whatever an author's function raises is its answer
            return failed_call(error, exchange, server)

    return run


def _limited(call: Callee, name: str, seconds: float) -> Callee:
    if seconds <= 0:
        raise ConfigError(f"tool {name}: a timeout is a number of seconds above 0, not {seconds!r}")

    async def limited(kwargs: dict[str, object], ctx: object) -> object:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await call(kwargs, ctx)
        except TimeoutError:
            # A TimeoutError of the tool's own making is not ours to explain.
            if not limit.expired():
                raise
            raise ToolError(f"{name} did not finish within its limit of {seconds:g} s") from None

    return limited
