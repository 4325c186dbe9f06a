"""Prompts: functions that return messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar

from msgspec.structs import replace

from holdfast.errors import UrlElicitationRequired
from holdfast.protocol.types import GetPromptResult, Icon, InputRequiredResult, Meta, Prompt
from holdfast.server.catalog.catalog import Entry
from holdfast.server.catalog.server_controls import ServerControls
from holdfast.server.context.context import Context, parts_of
from holdfast.server.context.current import entered
from holdfast.server.context.input_rounds import Again, open_pages_first, run_input_rounds
from holdfast.server.functions.client_errors import failed_request
from holdfast.server.functions.content import to_prompt_result
from holdfast.server.functions.input_required import InputRequired
from holdfast.server.functions.options import check_options, needs_and_tags
from holdfast.server.functions.registered_function import RegisteredFunction
from holdfast.server.host import Host

if TYPE_CHECKING:
    from holdfast.engine.exchange import Exchange

Run = Callable[["Exchange", dict[str, Any], ServerControls], Awaitable[GetPromptResult | InputRequiredResult]]

R = TypeVar("R")


class PromptOptions(TypedDict, total=False):
    """The options of `@server.prompt` and `add_prompt`."""

    name: str
    """The prompt's name; the function's name by default."""
    title: str
    """A name for people."""
    description: str
    """The description; the function's docstring by default."""
    icons: list[Icon]
    """Images that represent the prompt."""
    meta: Meta
    """The `_meta` of the prompt in `prompts/list`."""
    scopes: Collection[str]
    """The scopes that a principal needs to use the prompt, besides those of the server."""
    hidden: bool
    """True: the prompt does not exist for principals without these scopes. False: it is listed, and refused."""
    tags: Collection[str]
    """Names of groups: `server.disable(tags=…)` hides all components of a group. Clients do not see them."""
    enabled: bool
    """False hides the prompt until `enable_prompt`."""


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

        def call() -> Awaitable[object]:
            return function.call(function.bind(arguments), ctx)

        return await answered(call, lambda value: to_prompt_result(value, listed.description), ctx)

    return PromptEntry(listed, run, **needs_and_tags(options, f"prompt {function.name}"))


async def answered(call: Again, convert: Callable[[object], R], ctx: Context) -> R | InputRequiredResult:
    """Call an author's function, again for each round of input, and convert its value.

    Raises:
        McpError: the function raised, or its value cannot be converted.
    """
    exchange, server, _ = parts_of(ctx)
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
