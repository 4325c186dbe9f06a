"""The parameters and the return type of a callable with resolved annotations: functions, methods, partials, objects.

Names that exist only for type checkers are resolved if that is unambiguous: `Context` by its name, and names that
are local to the function in which the callable is defined.
"""

import functools
import inspect
import sys
import typing
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType, UnionType
from typing import Annotated, Any, Final, Union

from msgspec import Struct

Callee = Callable[[dict[str, object], object], Awaitable[object]]

MISSING: Final = inspect.Parameter.empty
VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ContextBase:
    """The base of `Context`: a parameter annotated with it or a subclass gets the context of the call.

    So does a parameter that is named `ctx` and has no annotation.
    """

    __slots__ = ()


class Parameter(Struct, frozen=True):
    """One parameter.

    `annotation` keeps the metadata of `Annotated`, and is Any for a parameter without an annotation.
    """

    name: str
    annotation: Any
    default: Any
    kind: Any

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING

    @property
    def is_variadic(self) -> bool:
        return self.kind in VARIADIC

    @property
    def metadata(self) -> tuple[Any, ...]:
        return getattr(self.annotation, "__metadata__", ())

    @property
    def is_context(self) -> bool:
        return _is_context(self.annotation)


class Signature(Struct, frozen=True):
    parameters: tuple[Parameter, ...]
    returns: Any


def read(call: Callable[..., Any]) -> Signature:
    """Read a callable's signature.

    Raises:
        TypeError: it has no signature, or an annotation cannot be resolved; the message says which.
    """
    try:
        signature = inspect.signature(call)
    except ValueError as error:
        raise TypeError(f"{describe(call)} has no signature that Python can read") from error
    hidden = _bound_keywords(call)
    chosen = [item for item in signature.parameters.values() if item.name not in hidden]
    annotations = {item.name: item.annotation for item in chosen if item.annotation is not MISSING}
    if signature.return_annotation is not MISSING:
        annotations["return"] = signature.return_annotation
    hints = _resolve(call, annotations)
    parameters = (
        Parameter(item.name, hints.get(item.name, _unannotated(item)), item.default, item.kind)
        for item in chosen
    )
    return Signature(tuple(parameters), hints.get("return", MISSING))


def _unannotated(item: inspect.Parameter) -> Any:
    """Return the type of a parameter without an annotation: a parameter named `ctx` is the context."""
    return ContextBase if item.name == "ctx" and item.kind not in VARIADIC else Any


def describe(call: Callable[..., Any]) -> str:
    """Name a callable for an error message."""
    base = underlying(call)
    return f"{getattr(base, '__module__', '?')}.{getattr(base, '__qualname__', type(call).__name__)}"


def place_of(call: Callable[..., Any]) -> str:
    """Return the file and line of a callable for an error message; empty if it is not written in Python."""
    code = getattr(underlying(call), "__code__", None)
    return "" if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def underlying(call: Any) -> Any:
    """Return the plain function behind partials, methods, `functools.wraps` and callable objects."""
    while True:
        if isinstance(call, functools.partial):
            call = call.func
        elif hasattr(call, "__wrapped__"):
            call = call.__wrapped__
        elif inspect.ismethod(call):
            call = call.__func__
        elif inspect.isclass(call):
            return call.__init__ if inspect.isfunction(call.__init__) else call
        elif not inspect.isroutine(call) and inspect.ismethod(getattr(call, "__call__", None)):  # noqa: B004
            call = call.__call__
        else:
            return call


def is_async(call: Any) -> bool:
    """Return True if a call returns a coroutine, so that no thread is needed."""
    return inspect.iscoroutinefunction(body(call))


def body(call: Any) -> Any:
    """Return the function whose body a call enters first: behind partials, methods and callable objects only."""
    while isinstance(call, functools.partial):
        call = call.func
    if inspect.isroutine(call) or inspect.isclass(call):
        return call
    return body(type(call).__call__)


def _bound_keywords(call: Any) -> set[str]:
    hidden: set[str] = set()
    while isinstance(call, functools.partial):
        hidden.update(call.keywords)
        call = call.func
    return hidden


def _resolve(call: Callable[..., Any], annotations: dict[str, Any]) -> dict[str, Any]:
    base = underlying(call)
    spaces = [_closure(base), _local_names(getattr(base, "__code__", None)), {"Context": ContextBase}]
    names: dict[str, Any] = {}
    while True:
        try:
            return _hints(annotations, getattr(base, "__globals__", {}), names)
        except NameError as error:
            missing = error.name or ""
            found = next((space[missing] for space in spaces if missing in space), None)
            if found is None or missing in names:
                raise TypeError(
                    f"{describe(call)}: its annotations need the name {missing!r} when it is registered; "
                    "import it outside `if TYPE_CHECKING:`"
                ) from error
            names[missing] = found


def _hints(annotations: dict[str, Any], names: dict[str, Any], local: dict[str, Any]) -> dict[str, Any]:
    def carrier() -> None: ...

    carrier.__annotations__ = annotations
    return typing.get_type_hints(carrier, globalns=names, localns=local, include_extras=True)


def _closure(base: Any) -> dict[str, Any]:
    cells = zip(
        getattr(getattr(base, "__code__", None), "co_freevars", ()),
        getattr(base, "__closure__", None) or (),
        strict=False,
    )
    return {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _local_names(code: CodeType | None) -> dict[str, Any]:
    """Return the locals of the running function whose body holds `code`: where a decorator is being applied."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if code is not None and code in frame.f_code.co_consts:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _is_context(annotation: Any) -> bool:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _is_context(typing.get_args(annotation)[0])
    if origin in (Union, UnionType):
        return any(_is_context(item) for item in typing.get_args(annotation))
    target = origin or annotation
    return inspect.isclass(target) and issubclass(target, ContextBase)
