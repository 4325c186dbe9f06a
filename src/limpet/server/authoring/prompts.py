"""Prompts: functions that return messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec.structs import replace

from limpet.errors import UrlElicitationRequired
from limpet.protocol.types import GetPromptResult, InputRequiredResult, Prompt
from limpet.server.catalog.catalog import Entry
from limpet.server.catalog.server_controls import ServerControls
from limpet.server.context.context import Context, parts_of
from limpet.server.context.current import entered
from limpet.server.context.input_rounds import open_pages_first, run_input_rounds
from limpet.server.functions.client_errors import failed_request
from limpet.server.functions.content import to_prompt_result
from limpet.server.functions.input_required import InputRequired
from limpet.server.functions.options import ComponentOptions, check_options, needs_and_tags
from limpet.server.functions.registered_function import RegisteredFunction
from limpet.server.host import Host

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange

Run = Callable[["Exchange", dict[str, Any], ServerControls], Awaitable[GetPromptResult | InputRequiredResult]]

R = TypeVar("R")


class PromptOptions(ComponentOptions, total=False):
    """The options of `@server.prompt` and `add_prompt`."""


class PromptEntry(Entry, frozen=True):
    """A registered prompt."""

    listed: Prompt
    run: Run

    @property
    def key(self) -> str:
        return self.listed.name

    def renamed(self, key: str) -> Self:
        return replace(self, listed=replace(self.listed, name=key))


def prompt_entry(fn: Callable[..., Any], options: PromptOptions, owner: Host) -> PromptEntry:
    """Make the catalog entry of a prompt from a function.

    Raises:
        TypeError: the function's signature cannot be described to a client, or an option is unknown.
        ConfigError: a scope is invalid.
    """
    check_options(options, PromptOptions, "a prompt")
    function = RegisteredFunction(
        fn,
        name=options.get("name"),
        title=options.get("title"),
        description=options.get("description"),
        output_schema=False,
    )
    listed = Prompt(
        name=function.name,
        title=function.title,
        description=function.description or None,
        arguments=function.prompt_arguments() or None,
        icons=options.get("icons"),
        meta=options.get("meta"),
    )

    async def run(
        exchange: Exchange, arguments: dict[str, Any], server: ServerControls
    ) -> GetPromptResult | InputRequiredResult:
        ctx = Context(exchange, server, owner)
        return await answered(
            function, arguments, ctx, lambda value: to_prompt_result(value, listed.description)
        )

    return PromptEntry(listed, run, **needs_and_tags(options, f"prompt {function.name}", fn))


async def answered(
    function: RegisteredFunction,
    arguments: Mapping[str, object],
    ctx: Context,
    convert: Callable[[object], R],
) -> R | InputRequiredResult:
    """Call an author's function, again for each round of input, and convert its value.

    Raises:
        McpError: the function raised, or its value cannot be converted.
    """
    exchange, server, _ = parts_of(ctx)

    def call() -> Awaitable[object]:
        return function.call(function.bind(arguments), ctx)

    try:
        with entered(ctx):
            try:
                value = await call()
            except UrlElicitationRequired as error:
                value = open_pages_first(error, exchange)
            if isinstance(value, InputRequired):
                value = await run_input_rounds(value, exchange, server, call)
            return value if isinstance(value, InputRequiredResult) else convert(value)
    except Exception as error:
        raise failed_request(error, exchange, server) from error
