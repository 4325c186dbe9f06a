"""`Depends`: parameters that the server fills in and that clients do not see.

Each dependency is created at most once per call, before the function runs. Generators are finished after the
function, the last one first; they see the exception of the call but cannot suppress it.
"""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from typing_extensions import override

from limpet.server.functions.signature import Callee, Parameter, body, read


class Dependency:
    """The marker that `Depends` returns."""

    __slots__ = ("dependency",)

    def __init__(self, dependency: Callable[..., Any]) -> None:
        if not callable(dependency):
            raise TypeError(f"Depends takes a callable, not {dependency!r}")
        self.dependency: Callable[..., Any] = dependency

    @override
    def __repr__(self) -> str:
        return f"Depends({getattr(self.dependency, '__name__', self.dependency)!s})"


def Depends(dependency: Callable[..., Any]) -> Any:  # noqa: N802  # reads like the annotation that it is
    """Mark a parameter whose value `dependency` returns: as its default value, or inside `Annotated`.

    The dependency is a plain or async function, or a generator that yields once. It may take the context and
    further dependencies. Plain functions run in a worker thread.

    Raises:
        TypeError: the dependency is not callable.
    """
    return Dependency(dependency)


def marker(parameter: Parameter) -> Dependency | None:
    """Return the parameter's `Depends`, if it has one."""
    for candidate in (parameter.default, *parameter.metadata):
        if isinstance(candidate, Dependency):
            return candidate
    return None


class Node:
    """A dependency, prepared at registration: its parameters and how it is called."""

    __slots__ = ("_context", "_key", "_make", "_needs")

    def __init__(self, dependency: Callable[..., Any], path: tuple[Callable[..., Any], ...] = ()) -> None:
        if dependency in path:
            names = " → ".join(_name(item) for item in (*path, dependency))
            raise TypeError(f"dependencies form a cycle: {names}")
        is_hashable = getattr(type(dependency), "__hash__", None) is not None
        self._key: object = dependency if is_hashable else id(dependency)
        self._make = _maker(dependency)
        self._context: list[str] = []
        self._needs: list[tuple[str, Node]] = []
        for parameter in read(dependency).parameters:
            if parameter.is_context:
                self._context.append(parameter.name)
            elif (found := marker(parameter)) is not None:
                self._needs.append((parameter.name, Node(found.dependency, (*path, dependency))))
            elif not parameter.has_default and not parameter.is_variadic:
                raise TypeError(
                    f"dependency {_name(dependency)} needs a value for {parameter.name!r}: "
                    "give it a default, a Depends, or annotate it as Context"
                )

    async def make(self, ctx: object, made: dict[Any, object], stack: AsyncExitStack) -> object:
        """Return the value for this call: the one in `made`, or a new one."""
        if self._key in made:
            return made[self._key]
        kwargs = {name: await need.make(ctx, made, stack) for name, need in self._needs}
        kwargs.update((name, ctx) for name in self._context)
        value = made[self._key] = await self._make(stack, kwargs)
        return value


Maker = Callable[[AsyncExitStack, dict[str, object]], Awaitable[object]]


def _maker(dependency: Callable[..., Any]) -> Maker:
    entered = body(dependency)
    if inspect.isasyncgenfunction(entered):
        manager = asynccontextmanager(dependency)
        return lambda stack, kwargs: stack.enter_async_context(manager(**kwargs))
    if inspect.isgeneratorfunction(entered):
        return lambda stack, kwargs: stack.enter_async_context(_threaded(dependency, kwargs))
    if inspect.iscoroutinefunction(entered):
        return lambda _, kwargs: dependency(**kwargs)
    from limpet.server.functions.threads import called_in_thread  # noqa: PLC0415 - only a server that runs needs it

    return lambda _, kwargs: called_in_thread(dependency, **kwargs)


@asynccontextmanager
async def _threaded(generator: Callable[..., Any], kwargs: dict[str, object]) -> Any:
    """Run the two halves of a plain generator in worker threads."""
    from limpet.server.functions.threads import in_thread  # noqa: PLC0415 - only a server that runs needs it

    manager = contextmanager(generator)(**kwargs)
    value = await in_thread(manager.__enter__)
    try:
        yield value
    except BaseException as error:
        await in_thread(manager.__exit__, type(error), error, error.__traceback__)
        raise
    await in_thread(manager.__exit__, None, None, None)


class Injector:
    """Calls a function with its dependencies: creates them before and finishes them after the call."""

    __slots__ = ("_invoke", "_needs")

    def __init__(self, needs: list[tuple[str, Node]], invoke: Callee) -> None:
        self._needs = needs
        self._invoke = invoke

    async def __call__(self, kwargs: dict[str, object], ctx: object) -> object:
        failure: BaseException | None = None
        made: dict[Any, object] = {}
        async with AsyncExitStack() as stack:
            try:
                for name, node in self._needs:
                    kwargs[name] = await node.make(ctx, made, stack)
                return await self._invoke(kwargs, ctx)
            except BaseException as error:
                failure = error
                raise
        # Reached only if a generator suppressed the exception: the call must not look successful.
        raise failure or RuntimeError("a dependency ended the call")


def _name(item: Callable[..., Any]) -> str:
    return getattr(item, "__name__", type(item).__name__)
