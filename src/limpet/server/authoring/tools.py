"""Tools: their entries in the catalog, and the path of one call.

Everything that can be decided at registration is decided there. A call binds the arguments, awaits the function and
converts its value to a result. Only functions that use a context get one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from msgspec.structs import replace

from limpet.config import Rate
from limpet.errors import ConfigError, InvalidArguments, ToolError, UrlElicitationRequired, WrongResult
from limpet.protocol.mirrored_headers import MirroredParameter, mirrored_parameters
from limpet.protocol.patience import HandOverTime, check_time
from limpet.protocol.types import (
    CallToolResult,
    InputRequiredResult,
    Tool,
    ToolAnnotations,
)
from limpet.server.catalog.catalog import Entry
from limpet.server.catalog.server_controls import ServerControls
from limpet.server.context.context import Context
from limpet.server.context.input_rounds import open_pages_first, run_input_rounds
from limpet.server.context.task_calls import Run, TaskMode, as_task
from limpet.server.current_call import CURRENT
from limpet.server.functions.client_errors import failed, failed_call
from limpet.server.functions.content import to_result
from limpet.server.functions.depends import Injector
from limpet.server.functions.input_required import InputRequired
from limpet.server.functions.options import HINTS, ComponentOptions, check_options, needs_and_tags
from limpet.server.functions.registered_function import RegisteredFunction
from limpet.server.functions.signature import Callee, place_of
from limpet.server.host import Host

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange

NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""The names that the specification allows for a tool."""


class ToolOptions(ComponentOptions, total=False):
    """The options of `@server.tool` and `add_tool`."""

    annotations: ToolAnnotations
    """Hints about the tool's effects."""
    timeout: float
    """Seconds until a call ends with a failed result."""
    rate: str
    """How often all clients together, or each principal, may call: `100/s`, `10/m per principal`. Beyond: 429,
    −31001."""
    input_schema: Mapping[str, Any]
    """The JSON schema of the arguments, instead of one made from the signature."""
    output_schema: Mapping[str, Any] | Literal[False]
    """The JSON schema of the structured content, instead of one made from the annotation; False: none."""
    task: TaskMode
    """Calls run as tasks if the client (2026-07-28) supports tasks; `required` refuses other clients of that era."""
    hand_over: HandOverTime
    """Seconds after which a call that still runs is answered, and goes on: see `Settings.hand_over`."""
    task_by_hand: bool
    """A call becomes a task when its function awaits `ctx.start_task()`, not at its start."""


class ToolEntry(Entry, frozen=True):
    """A registered tool."""

    listed: Tool
    run: Run
    mirrored: tuple[MirroredParameter, ...] = ()
    """The parameters that HTTP headers repeat."""
    task: TaskMode | None = None
    """Whether its calls can or must run as tasks."""
    rate: Rate | None = None
    """How often it may be called."""
    hand_over: HandOverTime | None = None
    """When a call that still runs is handed over."""

    @property
    def key(self) -> str:
        return self.listed.name

    def renamed(self, key: str) -> Self:
        return replace(self, listed=replace(self.listed, name=key))


def tool_entry(fn: Callable[..., Any], options: ToolOptions, owner: Host) -> ToolEntry:
    """Make the catalog entry of a tool from a function.

    Raises:
        TypeError: the function's signature cannot be described to a client, or an option is unknown.
        ConfigError: the name, the timeout, the rate, the task mode or a scope is invalid.
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
            f"{function.name!r} is not a valid tool name: use 1 to 128 letters, digits, underscores, dots and hyphens"
        )
    listed = Tool(
        name=function.name,
        title=function.title,
        description=function.description or None,
        input_schema=function.input_schema,
        output_schema=function.output_schema,
        annotations=_annotations(options.get("annotations")),
        icons=options.get("icons"),
        meta=options.get("meta"),
    )
    call = function.call
    if (seconds := options.get("timeout")) is not None:
        call = _limited(call, function.name, seconds)
    mirrored = mirrored_parameters(function.input_schema, function.name)
    task, by_hand = options.get("task"), options.get("task_by_hand", False)
    run = as_task(_runner(function, call, owner), function.name, task, by_hand=by_hand)
    place = f"tool {function.name}"
    rate = Rate.read(options["rate"], f"{place}: rate") if "rate" in options else None
    hand_over = options.get("hand_over")
    if hand_over is not None:
        check_time(f"{place}: hand_over", hand_over)
    return ToolEntry(listed, run, mirrored, task, rate, hand_over, **needs_and_tags(options, place, fn))


def _annotations(given: Any) -> ToolAnnotations | None:
    """Return the annotations of a tool. FastMCP takes a dict too, with the names of the protocol."""
    if not isinstance(given, dict):
        found: ToolAnnotations | None = given
        return found
    ours: dict[str, Any] = {HINTS.get(str(name), str(name)): value for name, value in given.items()}
    check_options(ours, ToolAnnotations, "ToolAnnotations")
    return ToolAnnotations(**ours)


def _runner(function: RegisteredFunction, call: Callee, owner: Host) -> Run:
    name, bind, place = function.name, function.bind, place_of(function.fn)
    current, enter = CURRENT.get, CURRENT.set
    structure, wraps_result = function.structure, function.wraps_result
    # A dependency may take the context too.
    wants_context = function.wants_context or isinstance(function.call, Injector)

    def again(exchange: Exchange, arguments: dict[str, Any], server: ServerControls) -> Awaitable[object]:
        return call(bind(arguments), Context(exchange, server, owner) if wants_context else None)

    async def run(
        exchange: Exchange, arguments: dict[str, Any], server: ServerControls
    ) -> CallToolResult | InputRequiredResult:
        try:
            kwargs = bind(arguments)
        except InvalidArguments as error:
            # The model chose the arguments. In a result it can read the problem and correct them.
            return failed(error.message)
        outer = current()
        enter((exchange, server, owner))
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
        except WrongResult as error:
            return failed_call(WrongResult(f"tool {name}: {error}", place), exchange, server)
        except Exception as error:  # noqa: BLE001 - any exception of an author's function becomes its answer
            return failed_call(error, exchange, server)
        finally:
            enter(outer)

    return run


def _limited(call: Callee, name: str, seconds: float) -> Callee:
    if type(seconds) not in (int, float) or not seconds > 0:
        raise ConfigError(f"tool {name}: a timeout is a number of seconds above 0, not {seconds!r}")
    import asyncio  # noqa: PLC0415 - only a server that runs needs it

    async def limited(kwargs: dict[str, object], ctx: object) -> object:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await call(kwargs, ctx)
        except TimeoutError:
            # The tool itself raised TimeoutError; its own text explains it.
            if not limit.expired():
                raise
            raise ToolError(f"{name} did not finish within its limit of {seconds:g} s") from None

    return limited
