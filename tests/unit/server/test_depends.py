"""Dependencies: hidden, made once per call, torn down after it, and unable to hide its error."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from limpet.server.functions.depends import Depends
from limpet.server.functions.registered_function import RegisteredFunction
from limpet.server.functions.signature import ContextBase


class Context(ContextBase):
    pass


def run(function: RegisteredFunction, ctx: object = None, **arguments: object) -> object:
    async def main() -> object:
        return await function.call(function.bind(arguments), ctx)

    return asyncio.run(main())


def setting(text: str = "setting") -> str:
    return text


async def connection(ctx: Context, name: Annotated[str, Depends(setting)]) -> tuple[object, str]:
    return ctx, name


def test_dependencies_are_hidden_and_filled_in_with_their_own() -> None:
    async def tool(
        a: int,
        c: Annotated[Any, Depends(connection)],
        s: str = Depends(setting),
    ) -> tuple[int, Any, str]:
        return a, c, s

    function = RegisteredFunction(tool)
    ctx = Context()
    assert function.parameters == ("a",)
    assert run(function, ctx, a=1) == (1, (ctx, "setting"), "setting")


def test_a_plain_function_may_have_dependencies_and_the_context() -> None:
    def tool(ctx: Context, c: Annotated[Any, Depends(connection)]) -> bool:
        return c[0] is ctx

    assert run(RegisteredFunction(tool), Context()) is True


def test_a_dependency_shared_by_several_is_made_once_per_call() -> None:
    made: list[object] = []

    def base() -> object:
        made.append(object())
        return made[-1]

    def left(b: Annotated[object, Depends(base)]) -> object:
        return b

    async def tool(l: Annotated[Any, Depends(left)], b: Annotated[Any, Depends(base)]) -> bool:  # noqa: E741
        return l is b

    function = RegisteredFunction(tool)
    assert run(function) is True
    assert run(function) is True
    assert len(made) == 2


def test_generators_are_ended_after_the_call_the_last_first() -> None:
    events: list[str] = []

    async def outer() -> AsyncIterator[str]:
        events.append("outer made")
        yield "outer"
        events.append("outer ended")

    def inner(o: Annotated[str, Depends(outer)]) -> Iterator[str]:
        events.append("inner made")
        assert threading.current_thread() is not threading.main_thread()
        yield o + " inner"
        events.append("inner ended")

    async def tool(i: Annotated[str, Depends(inner)]) -> str:
        events.append("called")
        return i

    assert run(RegisteredFunction(tool)) == "outer inner"
    assert events == ["outer made", "inner made", "called", "inner ended", "outer ended"]


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_generator_sees_the_error_but_cannot_swallow_it(is_plain: bool) -> None:
    seen: list[str] = []

    async def swallowing() -> AsyncIterator[None]:
        try:
            yield
        except LookupError as error:
            seen.append(str(error))

    def swallowing_plainly() -> Iterator[None]:
        try:
            yield
        except LookupError as error:
            seen.append(str(error))

    async def tool(_: Annotated[None, Depends(swallowing_plainly if is_plain else swallowing)]) -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        run(RegisteredFunction(tool))
    assert seen == ["lost"]


def test_a_dependency_that_fails_ends_those_made_before_and_the_tool_does_not_run() -> None:
    events: list[str] = []

    async def first() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            events.append("ended")

    async def second() -> int:
        raise ConnectionError("no database")

    async def tool(a: Annotated[int, Depends(first)], b: Annotated[int, Depends(second)]) -> None:
        events.append("ran")

    with pytest.raises(ConnectionError, match="no database"):
        run(RegisteredFunction(tool))
    assert events == ["ended"]


def test_cancelling_the_call_ends_its_generators() -> None:
    async def main() -> list[str]:
        events: list[str] = []
        entered = asyncio.Event()

        async def resource() -> AsyncIterator[None]:
            try:
                yield
            finally:
                events.append("ended")

        async def tool(_: Annotated[None, Depends(resource)]) -> None:
            entered.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(RegisteredFunction(tool).call({}, None))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return events

    assert asyncio.run(main()) == ["ended"]


class Pool:
    def __init__(self, name: Annotated[str, Depends(setting)]) -> None:
        self.name = name


class Factory:
    async def __call__(self) -> str:
        return "made by an object"


def test_classes_and_callable_objects_are_dependencies_too() -> None:
    async def tool(pool: Annotated[Pool, Depends(Pool)], made: Annotated[str, Depends(Factory())]) -> str:
        return f"{pool.name}, {made}"

    assert run(RegisteredFunction(tool)) == "setting, made by an object"


@dataclass
class Table:
    """Not hashable, like any plain dataclass."""

    name: str

    def __call__(self) -> list[str]:
        return [self.name]


def test_partials_and_unhashable_objects_are_dependencies_too() -> None:
    async def named(name: str) -> str:
        return name

    table = Table("t")

    async def tool(
        a: Annotated[str, Depends(functools.partial(named, name="p"))],
        b: Annotated[list[str], Depends(table)],
        c: Annotated[list[str], Depends(table)],
    ) -> tuple[str, bool]:
        return a + b[0], b is c

    assert run(RegisteredFunction(tool)) == ("pt", True)


def test_a_dependency_cycle_is_refused_when_registered() -> None:
    def left(x: Any) -> None: ...

    def right(x: Annotated[None, Depends(left)]) -> None: ...

    left.__annotations__["x"] = Annotated[None, Depends(right)]

    def tool(x: Annotated[None, Depends(left)]) -> None: ...

    with pytest.raises(TypeError, match="form a cycle: left → right → left"):
        RegisteredFunction(tool)


def test_a_dependency_that_wants_an_argument_is_refused_when_registered() -> None:
    def needy(key: str) -> str:
        return key

    def tool(x: Annotated[str, Depends(needy)]) -> None: ...

    with pytest.raises(TypeError, match="dependency needy needs a value for 'key'"):
        RegisteredFunction(tool)


def test_depends_takes_a_callable() -> None:
    with pytest.raises(TypeError, match="Depends takes a callable, not 3"):
        Depends(3)  # type: ignore[arg-type]
    assert repr(Depends(setting)) == "Depends(setting)"
