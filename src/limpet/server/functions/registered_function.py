"""A Python callable that is registered as a tool, prompt or resource. It is analysed once, at registration.

A call needs no analysis any more: `call` is the shortest path into the function that its signature allows.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import ModuleType
from typing import Any, Final, Literal

from limpet.errors import InvalidArguments, WrongResult
from limpet.protocol.types import PromptArgument
from limpet.protocol.wrapping import wrapped
from limpet.server.functions.content import is_content_type, jsonable
from limpet.server.functions.depends import Injector, Node, marker
from limpet.server.functions.docstrings import parse
from limpet.server.functions.input_required import without_input
from limpet.server.functions.signature import (
    MISSING,
    Callee,
    Parameter,
    body,
    describe,
    is_async,
    read,
    underlying,
)

Schema = dict[str, Any]
Structure = Callable[[object], dict[str, Any] | None]
Outcome = tuple[Schema | None, Structure, bool]
"""The schema of a result, the function that makes structured content, and whether it wraps the value."""

SCALARS: Final[dict[Any, str]] = {str: "string", int: "integer", float: "number", bool: "boolean"}
UNSTRUCTURED: Final = (MISSING, Any, None, type(None), object, dict, list, tuple, set, bytes)
"""Return annotations that give no output schema."""
NO_PARAMETERS: Final[Schema] = {"type": "object", "properties": {}}


class RegisteredFunction:
    """A registered callable.

    `call(kwargs, ctx)` calls it with the dict that `bind` returned, and may change that dict. `structure(value)`
    returns the structured content of its value, or None; it raises WrongResult if the value is not of the declared
    type.

    Raises:
        TypeError: the callable cannot be registered; the message says how to change it.
    """

    __slots__ = (
        "_gather",
        "_validate",
        "call",
        "description",
        "fn",
        "input_schema",
        "name",
        "output_schema",
        "parameters",
        "structure",
        "title",
        "wants_context",
        "wraps_result",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | Literal[False] | None = None,
    ) -> None:
        """Read the signature and docstring of `fn`; the keyword arguments take precedence.

        With an `input_schema`, a function of one dict or of `**kwargs` gets the arguments unchecked. An
        `output_schema` of False means no schema.
        """
        _check_callable(fn)
        self.fn: Callable[..., Any] = fn
        self.name: str = name or _name(fn)
        self.title: str | None = title
        text, described = parse(_docstring(fn))
        self.description: str = text if description is None else description
        signature = read(fn)
        self.wants_context: bool
        self.call: Callee
        given, self.wants_context, self.call = _plan(fn, signature.parameters)
        self._gather = _gatherer(given) if input_schema is not None else None
        self._validate: Callable[[Mapping[str, object]], dict[str, object]] = _none_taken
        self.input_schema: Schema = NO_PARAMETERS
        self.parameters: tuple[str, ...] = tuple(parameter.name for parameter in given)
        if given and self._gather is None:
            self._read_arguments(given, described)
        if input_schema is not None:
            self.input_schema = dict(input_schema)
        self.output_schema: Schema | None
        self.structure: Structure
        self.wraps_result: bool
        self.output_schema, self.structure, self.wraps_result = self._read_result(
            signature.returns, output_schema
        )

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the required arguments."""
        return tuple(self.input_schema.get("required", ()))

    def bind(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the keyword arguments for `call`, validated and converted.

        Raises:
            InvalidArguments: listing each problem.
        """
        if self._gather is not None:
            return self._gather(arguments)
        try:
            return self._validate(arguments)
        except ValueError as error:
            raise self._refusal(error) from None

    def prompt_arguments(self) -> list[PromptArgument]:
        """Describe the parameters as a prompt's arguments."""
        required = self.required
        return [
            PromptArgument(
                name=name,
                title=entry.get("title"),
                description=entry.get("description"),
                required=name in required,
            )
            for name, entry in self.input_schema["properties"].items()
        ]

    def _read_arguments(self, given: list[Parameter], described: dict[str, str]) -> None:
        if variadic := next((item.name for item in given if item.is_variadic), None):
            raise TypeError(
                f"{describe(self.fn)}: *{variadic} has no schema; name the parameters, or give an input_schema"
            )
        try:
            made = _schema().arguments(given, described)
        except TypeError as error:
            raise TypeError(f"{describe(self.fn)}: {error}") from error
        self.input_schema = made.schema
        self._validate = made.validate

    def _read_result(self, annotation: Any, override: Mapping[str, Any] | Literal[False] | None) -> Outcome:
        if override is False:
            return None, _nothing, False
        if override is not None:
            return dict(override), partial(_required_object, override), False
        annotation = without_input(annotation)
        if isinstance(annotation, type) and annotation in SCALARS:
            return wrapped({"type": SCALARS[annotation]}), partial(_scalar, annotation), True
        if annotation in UNSTRUCTURED:
            return None, _object, False
        if is_content_type(annotation):
            return None, _nothing, False
        try:
            made = _schema().output(annotation)
        except TypeError as error:
            raise TypeError(f"{describe(self.fn)}: {error}") from error
        return made.schema, made.structure, made.wraps

    def _refusal(self, error: ValueError) -> InvalidArguments:
        found = _schema().problems(error, tuple(self.input_schema["properties"]))
        lines = "".join(f"\n- {problem}" for problem in found)
        return InvalidArguments(f"Invalid arguments for {self.name}:{lines}", found)


def _none_taken(arguments: Mapping[str, object]) -> dict[str, object]:
    if arguments:
        raise ValueError("it takes no arguments")
    return {}


def _schema() -> ModuleType:
    """Import pydantic when the first function is registered: importing `limpet` must stay fast."""
    from limpet.server.functions import schema  # noqa: PLC0415

    return schema


# Structured content


def _nothing(_value: object) -> None:
    return None


def _scalar(kind: type, value: object) -> dict[str, Any]:
    if type(value) is kind or (kind is float and type(value) is int):
        return {"result": value}
    return _convert_scalar(kind)(value)


@cache
def _convert_scalar(kind: type) -> Callable[[object], dict[str, Any]]:
    structure: Callable[[object], dict[str, Any]] = _schema().output(kind).structure
    return structure


def _object(value: object) -> dict[str, Any] | None:
    return jsonable(value) if isinstance(value, dict) else None


def _required_object(schema: Mapping[str, Any], value: object) -> dict[str, Any]:
    structured = _object(value)
    if structured is None:
        raise WrongResult(
            f"it does not return dict, which its output_schema describes; returned {type(value).__name__}"
        )
    from limpet.server.functions.json_schema import misfits  # noqa: PLC0415 - for a given schema only

    if wrong := "; ".join(misfits(structured, schema)):
        raise WrongResult(f"its result does not fit its output_schema: {wrong}")
    return structured


# Calling the function


def _plan(fn: Callable[..., Any], parameters: tuple[Parameter, ...]) -> tuple[list[Parameter], bool, Callee]:
    """Return the parameters that the client fills in, whether a context is needed, and the function to call."""
    contexts = [item.name for item in parameters if item.is_context]
    needs: list[tuple[str, Node]] = []
    given: list[Parameter] = []
    for parameter in parameters:
        if (found := marker(parameter)) is not None:
            needs.append((parameter.name, Node(found.dependency)))
        elif not parameter.is_context:
            given.append(parameter)
    callee = _callee(fn, [item.name for item in parameters if item.kind is inspect.Parameter.POSITIONAL_ONLY])
    if contexts:
        callee = _with_context(callee, contexts)
    return given, bool(contexts), Injector(needs, callee) if needs else callee


def _callee(fn: Callable[..., Any], positional: list[str]) -> Callee:
    target = partial(_call_positionally, fn, positional) if positional else fn
    if is_async(fn):
        return lambda kwargs, _ctx: target(**kwargs)
    from limpet.server.functions.threads import called_in_thread  # noqa: PLC0415 - only a server that runs needs it

    return lambda kwargs, _ctx: called_in_thread(target, **kwargs)


def _call_positionally(fn: Callable[..., Any], names: list[str], /, **kwargs: object) -> Any:
    # A missing argument has a default, and so have all positional ones after it that are missing.
    values = []
    for name in names:
        if name not in kwargs:
            break
        values.append(kwargs.pop(name))
    return fn(*values, **kwargs)


def _with_context(callee: Callee, names: list[str]) -> Callee:
    if len(names) == 1:
        name = names[0]
        return lambda kwargs, ctx: callee({**kwargs, name: ctx}, ctx)
    return lambda kwargs, ctx: callee({**kwargs, **dict.fromkeys(names, ctx)}, ctx)


# Analysing the callable


def _check_callable(fn: Any) -> None:
    if isinstance(fn, classmethod) or not callable(fn):
        raise TypeError(f"{fn!r} cannot be called; register a function, or a method of an object or class")
    if inspect.isclass(fn):
        raise TypeError(f"{describe(fn)} is a class; register a function that returns an object of it")
    entered = body(fn)
    if inspect.isgeneratorfunction(entered) or inspect.isasyncgenfunction(entered):
        raise TypeError(
            f"{describe(fn)} is a generator; return a list, and report progress through the context"
        )
    base = underlying(fn)
    if fn is base and inspect.isfunction(fn):
        first = next(iter(inspect.signature(fn).parameters), "")
        if first in ("self", "cls"):
            raise TypeError(f"{describe(fn)} is a method without its object; register `object.{fn.__name__}`")


def _name(fn: Any) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    name: str = getattr(fn, "__name__", type(fn).__name__)
    if name == "<lambda>":
        raise TypeError("a lambda has no name; give one with name=")
    return name


def _docstring(fn: Any) -> str | None:
    while isinstance(fn, partial):
        fn = fn.func
    own = inspect.getdoc(fn)
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return own
    # Not getdoc(fn.__call__): for a method without a docstring it returns that of `type.__call__`.
    text = type(fn).__call__.__doc__
    return own or (inspect.cleandoc(text) if text else None)


def _gatherer(given: list[Parameter]) -> Callable[[Mapping[str, object]], dict[str, object]] | None:
    """Return how a function with an `input_schema` takes its arguments; None: by its signature."""
    if any(item.kind is inspect.Parameter.VAR_KEYWORD for item in given):
        return dict
    if len(given) == 1 and not given[0].is_variadic and _takes_mapping(given[0].annotation):
        name = given[0].name
        return lambda arguments: {name: dict(arguments)}
    return None


def _takes_mapping(annotation: Any) -> bool:
    origin = getattr(annotation, "__origin__", annotation)
    return origin is Any or (inspect.isclass(origin) and issubclass(origin, Mapping))
