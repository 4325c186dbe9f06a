"""The author's functions that answer the server: sampling, elicitation, roots. They are the same in both eras."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from limpet.errors import InvalidParams, MethodNotFound
from limpet.protocol.content import TextContent
from limpet.protocol.listing import Root
from limpet.protocol.params import CreateMessageParams, ElicitFormParams, ElicitURLParams
from limpet.protocol.results import CreateMessageResult, ElicitResult, ListRootsResult

T = TypeVar("T")

Elicitation = ElicitFormParams | ElicitURLParams
OnSample = Callable[[CreateMessageParams], Awaitable[CreateMessageResult | str] | CreateMessageResult | str]
"""Returns the model's answer; a string is the assistant's text."""
OnElicit = Callable[
    [Elicitation], Awaitable[ElicitResult | dict[str, Any] | None] | ElicitResult | dict[str, Any] | None
]
"""Returns the user's answer: a dict is the content of an accepted form, None means declined."""
OnRoots = Callable[[], Awaitable[Sequence[Root | str]] | Sequence[Root | str]]


class Handlers:
    """The author's functions by the method they answer."""

    def __init__(
        self,
        sampling: OnSample | None = None,
        elicitation: OnElicit | None = None,
        roots: OnRoots | Sequence[Root | str] | None = None,
    ) -> None:
        self._sampling = sampling
        self._elicitation = elicitation
        self._roots = roots

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities that these functions allow the client to declare."""
        declared: dict[str, Any] = {}
        if self._sampling is not None:
            declared["sampling"] = {}
        if self._elicitation is not None:
            declared["elicitation"] = {"form": {}, "url": {}}
        if self._roots is not None:
            declared["roots"] = {"listChanged": True}
        return declared

    async def __call__(self, method: str, params: dict[str, Any], _origin: object = None) -> object:
        """Answer a request of the server.

        Raises:
            MethodNotFound: there is no function for the method.
            InvalidParams: the params are not valid.
        """
        match method:
            case "sampling/createMessage" if self._sampling is not None:
                return _sampled(await _result(self._sampling(_read(params, CreateMessageParams))))
            case "elicitation/create" if self._elicitation is not None:
                asked = _read_elicitation(params)
                return _elicited(asked, await _result(self._elicitation(asked)))
            case "roots/list" if self._roots is not None:
                roots = self._roots
                found = await _result(roots()) if callable(roots) else roots
                return ListRootsResult(
                    roots=[Root(uri=one) if isinstance(one, str) else one for one in found]
                )
            case _:
                raise MethodNotFound(method)


def _read(params: dict[str, Any], shape: type[T]) -> T:
    try:
        return msgspec.convert(params, shape)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"Invalid params: {error}") from None


def _read_elicitation(params: dict[str, Any]) -> Elicitation:
    if params.get("mode") == "url":
        # 2026-07-28 has no such id: its pages are part of the call that is sent again.
        return _read({"elicitationId": "", **params}, ElicitURLParams)
    return _read(params, ElicitFormParams)


async def _result(answer: Awaitable[T] | T) -> T:
    return await answer if inspect.isawaitable(answer) else answer


def _sampled(answer: CreateMessageResult | str) -> CreateMessageResult:
    if isinstance(answer, str):
        return CreateMessageResult(role="assistant", content=TextContent(text=answer), model="unknown")
    return answer


def _elicited(asked: Elicitation, answer: ElicitResult | dict[str, Any] | None) -> ElicitResult:
    if answer is None:
        return ElicitResult(action="decline")
    result = ElicitResult(action="accept", content=answer) if isinstance(answer, dict) else answer
    if result.action != "accept" or not isinstance(asked, ElicitFormParams):
        return result
    return msgspec.structs.replace(
        result, content=_with_defaults(asked.requested_schema, result.content or {})
    )


def _with_defaults(schema: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a form, with the defaults of fields that were left out."""
    properties = schema.get("properties")
    defaults = {
        name: field["default"]
        for name, field in (properties.items() if isinstance(properties, dict) else ())
        if isinstance(field, dict) and "default" in field
    }
    return {**defaults, **content}
