"""Completions: values that a client suggests while its user fills in an argument of a prompt or template.

A function takes any of these parameters by name: `value` (the text typed so far), `arguments` (the values of the
other arguments), `argument` (name and value), `ref` (the prompt or template), `context` (the object of the
specification). It gets the `Context` by annotation.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.errors import ConfigError
from limpet.protocol.types import (
    CompleteParams,
    CompleteResult,
    Completion,
    PromptReference,
    Result,
)
from limpet.server.authoring.included_servers import by_ref, through
from limpet.server.catalog.catalog import Layer, Rename
from limpet.server.catalog.server_controls import ServerControls
from limpet.server.context.context import Context
from limpet.server.context.current import entered
from limpet.server.functions.client_errors import failed_request
from limpet.server.functions.signature import describe, is_async, place_of, read

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange

MAX_VALUES: Final = 100
"""The limit of the specification for one answer."""

OFFERED: Final[dict[str, Callable[[CompleteParams], object]]] = {
    "value": lambda params: params.argument.value,
    "arguments": lambda params: (params.context and params.context.arguments) or {},
    "argument": lambda params: params.argument,
    "ref": lambda params: params.ref,
    "context": lambda params: params.context,
}
NO_ANSWER: Final = CompleteResult(completion=Completion(values=[]))


class Completer(Struct, frozen=True):
    """A function that completes arguments, and for which prompt, template and argument; empty means all."""

    fn: Callable[..., Any]
    wanted: tuple[str, ...]
    contexts: tuple[str, ...]
    owner: Any
    prompt: str = ""
    resource: str = ""
    argument: str = ""
    within: tuple[Layer, ...] = ()

    def included(self, prompt: Rename, uri: Rename, server: object) -> Completer | None:
        """Return a copy for the server that includes `server`, under the names there.

        None if it hides the component.
        """
        prompt_there = prompt(self.prompt) if self.prompt else ""
        resource_there = uri(self.resource) if self.resource else ""
        if prompt_there is None or resource_there is None:
            return None
        layer = Layer(server, self.prompt or self.resource)
        return replace(self, prompt=prompt_there, resource=resource_there, within=(layer, *self.within))

    def fits(self, params: CompleteParams) -> bool:
        """Return True if this function can complete the argument."""
        if self.argument not in ("", params.argument.name):
            return False
        if isinstance(params.ref, PromptReference):
            return not self.resource and self.prompt in ("", params.ref.name)
        return not self.prompt and self.resource in ("", params.ref.uri)

    async def __call__(self, exchange: Exchange, params: CompleteParams, server: ServerControls) -> object:
        ctx = Context(exchange, server, self.owner)
        kwargs = {name: OFFERED[name](params) for name in self.wanted} | dict.fromkeys(self.contexts, ctx)
        with entered(ctx):
            if is_async(self.fn):
                return await self.fn(**kwargs)
            from limpet.server.functions.threads import called_in_thread  # noqa: PLC0415 - only a server that runs needs it

            return await called_in_thread(self.fn, **kwargs)


def completer(fn: Callable[..., Any], owner: object, prompt: str, resource: str, argument: str) -> Completer:
    """Make a completer from a function.

    Raises:
        TypeError: the function has another parameter without a default.
    """
    parameters = read(fn).parameters
    contexts = tuple(item.name for item in parameters if item.is_context)
    wanted = tuple(item.name for item in parameters if not item.is_context and item.name in OFFERED)
    for item in parameters:
        if item.name not in (*contexts, *wanted) and not item.has_default:
            raise TypeError(
                f"{describe(fn)}: a completion can be given {', '.join(OFFERED)} and the context, not {item.name!r}"
            )
    return Completer(fn, wanted, contexts, owner, prompt, resource, argument)


def check_completers(
    completers: Iterable[Completer], prompts: Collection[str], resources: Collection[str]
) -> None:
    """Refuse a completion for a prompt or resource template that the server does not have.

    Raises:
        ConfigError: there is none of this name; the message has the nearest one.
    """
    for item in completers:
        for kind, name, known in (("prompt", item.prompt, prompts), ("resource", item.resource, resources)):
            if name and name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"
                raise ConfigError(
                    f"{place_of(item.fn)}: {describe(item.fn)} completes the {kind} {name!r}, which the server does not have; {hint}"
                )


async def complete(
    completers: Iterable[Completer], exchange: Exchange, params: CompleteParams, server: ServerControls
) -> Result:
    """Call the functions that fit, the most specific first, until one returns a value other than None."""
    fitting = [item for item in completers if item.fits(params)]
    fitting.sort(key=lambda item: -sum(map(bool, (item.prompt, item.resource, item.argument))))
    try:
        for item in fitting:
            result = await _complete(item, exchange, params, server)
            if result is not NO_ANSWER:
                return result
    except Exception as error:
        raise failed_request(error, exchange, server) from error
    return NO_ANSWER


async def _complete(
    item: Completer, exchange: Exchange, params: CompleteParams, server: ServerControls
) -> Result:
    """Call one function, through the middleware of the included servers that it comes from."""

    async def inner(given: dict[str, Any]) -> Result:
        # A middleware may have changed the params: parse them again.
        read = params if given is exchange.inner.params else msgspec.convert(given, CompleteParams)
        value = await item(exchange, read, server)
        return NO_ANSWER if value is None else CompleteResult(completion=to_completion(value))

    raw = exchange.inner.params
    return await through(item.within, by_ref(raw["ref"]), inner, exchange, server)(raw)


def to_completion(value: object) -> Completion:
    """Convert a completion or an iterable of values to a completion within the limit."""
    if isinstance(value, Completion):
        found = value
    elif isinstance(value, Iterable) and not isinstance(value, str):
        found = Completion(values=[str(item) for item in value])
    else:
        raise TypeError(f"a completion returns texts or a Completion, not {type(value).__name__}")
    if len(found.values) <= MAX_VALUES:
        return found
    total = found.total if found.total is not None else len(found.values)
    return Completion(values=found.values[:MAX_VALUES], total=total, has_more=True)
