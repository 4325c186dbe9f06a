"""Callables as tools: their schemas, the binding of arguments, the call, and the conversion of results."""

import asyncio
import contextvars
import enum
import functools
import subprocess
import sys
import threading
import typing
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date
from types import CoroutineType
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import msgspec
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from limpet.errors import INVALID_PARAMS, InvalidArguments
from limpet.protocol.types import PromptArgument, TextContent
from limpet.server.functions.content import Image, ToolResult
from limpet.server.functions.registered_function import RegisteredFunction
from limpet.server.functions.signature import ContextBase
from tests.support import BOUND, async_test
from tests.unit.server import future_annotations


class Context(ContextBase):
    """Stands for the server's own."""


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """Somewhere."""

    name: str
    lat: float = Field(ge=-90, le=90, description="Degrees north")


@dataclass
class Span:
    start: date
    days: int = 1


class Options(TypedDict):
    unit: str
    deep: NotRequired["Inner"]


class Inner(TypedDict, total=False):
    level: int


class Tree(TypedDict):
    children: list["Tree"]


class Node(BaseModel):
    value: int
    children: "list[Node]" = []


def schema_of(fn: Callable[..., Any], **options: Any) -> dict[str, Any]:
    schema = RegisteredFunction(fn, **options).input_schema
    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    return schema


def run(function: RegisteredFunction, arguments: dict[str, Any], ctx: object = None) -> object:
    async def main() -> object:
        return await function.call(function.bind(arguments), ctx)

    return asyncio.run(main())


# Schemas


def test_a_signature_becomes_a_schema_without_noise() -> None:
    def forecast(
        city: str, days: int = 3, unit: Literal["c", "f"] = "c", note: str | None = None
    ) -> None: ...

    assert schema_of(forecast) == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "default": 3},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["city"],
    }


def test_models_dataclasses_enums_and_typed_dicts_keep_their_definitions() -> None:
    def fn(
        place: Place, span: Span, color: Color, options: Options, many: list[Options] | None = None
    ) -> None: ...

    schema = schema_of(fn)
    assert schema["$defs"].keys() == {"Place", "Span", "Color", "Options", "Inner"}
    assert schema["$defs"]["Options"]["required"] == ["unit"]
    assert "required" not in schema["$defs"]["Inner"]
    assert schema["$defs"]["Place"]["properties"]["lat"]["description"] == "Degrees north"
    bound = RegisteredFunction(fn).bind(
        {
            "place": {"name": "x", "lat": 1},
            "span": {"start": "2026-01-02"},
            "color": "red",
            "options": {"unit": "m", "deep": {}},
        }
    )
    assert bound == {
        "place": Place(name="x", lat=1),
        "span": Span(date(2026, 1, 2)),
        "color": Color.RED,
        "options": {"unit": "m", "deep": {}},
    }


def test_field_describes_bounds_and_defaults_in_annotated_or_as_default() -> None:
    def fn(
        a: Annotated[int, Field(ge=1, description="How many", title="Count")],
        b: int = Field(default=5, le=9),
        c: Annotated[list[str], Field(default_factory=list)] = Field(default_factory=lambda: ["x"]),  # noqa: B008
        d: str = Field(description="No default"),
    ) -> str:
        """Do it.

        Args:
            a: not this
            b: but this
        """
        return f"{a}{b}{c}{d}"

    function = RegisteredFunction(fn)
    properties = function.input_schema["properties"]
    assert properties["a"] == {"type": "integer", "minimum": 1, "description": "How many", "title": "Count"}
    assert properties["b"] == {"type": "integer", "maximum": 9, "default": 5, "description": "but this"}
    assert function.required == ("a", "d")
    assert run(function, {"a": 1, "d": "d"}) == "15['x']d"


def test_a_default_that_json_cannot_hold_is_left_out_of_the_schema() -> None:
    class Opaque: ...

    sentinel: Any = Opaque()

    def fn(x: Any = sentinel) -> bool:
        return x is sentinel

    assert schema_of(fn)["properties"] == {"x": {}}
    assert run(RegisteredFunction(fn), {}) is True


def test_names_that_pydantic_models_reserve_are_plain_parameters() -> None:
    def fn(schema: str, model_config: int, copy: str, _hidden: str, json: str = "j") -> str:
        return f"{schema}{model_config}{copy}{_hidden}{json}"

    assert (
        run(RegisteredFunction(fn), {"schema": "s", "model_config": 1, "copy": "c", "_hidden": "h"})
        == "s1chj"
    )


def test_no_parameters_make_an_empty_object() -> None:
    def fn() -> None: ...

    assert schema_of(fn) == {"type": "object", "properties": {}}


def test_a_type_without_a_schema_is_refused_by_name() -> None:
    class Opaque: ...

    def fn(a: int, x: Opaque) -> None: ...

    with pytest.raises(TypeError, match=r"fn: parameter 'x' has a type that JSON cannot carry"):
        RegisteredFunction(fn)


def test_variadic_parameters_are_refused() -> None:
    def args(*values: int) -> None: ...

    def kwargs(**values: int) -> None: ...

    for fn in (args, kwargs):
        with pytest.raises(TypeError, match=r"\*values has no schema; name the parameters"):
            RegisteredFunction(fn)


def test_a_typed_dict_that_contains_itself_points_to_typing_extensions_before_python_3_12() -> None:
    def fn(tree: Tree) -> None: ...

    # Newer versions have a TypedDict that pydantic accepts.
    is_new = sys.version_info >= (3, 12)
    with nullcontext() if is_new else pytest.raises(TypeError, match="typing_extensions"):
        RegisteredFunction(fn)


# Descriptions


DOCS = [
    """Add numbers.

    Slowly.

    Args:
        a (int): The first
            of two.
        b: The second: last.

    Returns:
        The sum.
    """,
    """Add numbers.

    Slowly.

    :param a: The first
        of two.
    :type a: int
    :param int b: The second: last.

    Returns:
        The sum.
    """,
    """Add numbers.

    Slowly.

    Parameters
    ----------
    a : int
        The first
        of two.
    b : int, optional
        The second: last.

    Returns
    -------
    The sum.
    """,
]


@pytest.mark.parametrize("doc", DOCS, ids=["google", "rest", "numpy"])
def test_docstrings_describe_the_tool_and_its_parameters(doc: str) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = doc
    function = RegisteredFunction(add)
    assert function.description.startswith("Add numbers.\n\nSlowly.\n\nReturns")
    assert function.description.endswith("The sum.")
    assert "first" not in function.description
    described = {name: entry["description"] for name, entry in function.input_schema["properties"].items()}
    assert described == {"a": "The first of two.", "b": "The second: last."}


def test_given_names_and_texts_take_precedence() -> None:
    def fn() -> None:
        """Docs."""

    function = RegisteredFunction(fn, name="other", title="Other", description="Said.")
    assert (function.name, function.title, function.description) == ("other", "Other", "Said.")
    assert RegisteredFunction(fn).description == "Docs."


def test_a_prompts_arguments_come_from_the_same_schema() -> None:
    def fn(topic: Annotated[str, Field(description="What about")], style: str = "plain") -> str:
        return topic + style

    assert RegisteredFunction(fn).prompt_arguments() == [
        PromptArgument(name="topic", description="What about", required=True),
        PromptArgument(name="style", required=False),
    ]


# Binding


def test_refused_arguments_are_listed_with_the_given_and_the_expected_value() -> None:
    def fn(city: str, days: int, tags: list[int] | None = None) -> None: ...

    with pytest.raises(InvalidArguments) as raised:
        RegisteredFunction(fn, name="forecast").bind({"days": "many" * 1000, "citty": "x", "tags": [1, "y"]})
    assert raised.value.code == INVALID_PARAMS
    problems = raised.value.problems
    assert problems[0] == "city: missing, but required"
    assert problems[1].startswith("days: Input should be a valid integer")
    assert "given 'manymany" in problems[1]
    assert len(problems[1]) < 200
    assert problems[2].startswith("tags[1]: Input should be a valid integer")
    assert problems[3] == "citty: unknown argument; did you mean 'city'?"
    assert raised.value.message.startswith("Invalid arguments for forecast:\n- city: missing")


def test_arguments_that_are_no_object_are_refused() -> None:
    def fn(a: int) -> None: ...

    with pytest.raises(InvalidArguments, match="the arguments are not an object"):
        RegisteredFunction(fn).bind([1])  # type: ignore[arg-type]


def test_an_alias_is_the_name_on_the_wire() -> None:
    def fn(from_: Annotated[str, Field(alias="from")], to: str = "b") -> str:
        return from_ + to

    function = RegisteredFunction(fn)
    assert function.required == ("from",)
    assert run(function, {"from": "a"}) == "ab"
    with pytest.raises(InvalidArguments, match="from_: unknown argument; did you mean 'from'"):
        function.bind({"from_": "a"})


def test_a_flood_of_problems_is_cut() -> None:
    def fn(values: list[int]) -> None: ...

    with pytest.raises(InvalidArguments) as raised:
        RegisteredFunction(fn).bind({"values": ["x"] * 1000})
    assert len(raised.value.problems) == 11
    assert raised.value.problems[-1] == "and 990 more"


def test_a_function_without_parameters_takes_no_arguments() -> None:
    def fn() -> None: ...

    assert RegisteredFunction(fn).bind({}) == {}
    with pytest.raises(InvalidArguments, match="for fn:\n- it takes no arguments"):
        RegisteredFunction(fn).bind({"x": 1})


def test_arguments_are_converted_in_the_lenient_way() -> None:
    def fn(n: int, on: bool, day: date) -> None: ...

    assert RegisteredFunction(fn).bind({"n": "3", "on": "true", "day": "2026-01-02"}) == {
        "n": 3,
        "on": True,
        "day": date(2026, 1, 2),
    }


def test_a_ready_schema_passes_arguments_as_they_came() -> None:
    ready = {"type": "object", "$defs": {"a": {"$anchor": "x"}}, "additionalProperties": False}

    def named(**kwargs: Any) -> str:
        return repr(kwargs)

    def single(ctx: Context, arguments: dict[str, Any]) -> str:
        return repr(arguments)

    def plain(n: int) -> int:
        return n

    for fn in (named, single):
        function = RegisteredFunction(fn, input_schema=ready)
        assert function.input_schema == ready
        assert run(function, {"a": "1", "b": [2]}) == "{'a': '1', 'b': [2]}"
    assert run(RegisteredFunction(plain, input_schema=ready), {"n": "1"}) == 1


# Calling


def test_an_async_function_without_parameters_is_called_without_a_wrapper() -> None:
    async def echo(text: str) -> str:
        return text

    coroutine = RegisteredFunction(echo).call({"text": "hi"}, None)
    assert isinstance(coroutine, CoroutineType)
    assert coroutine.cr_code is echo.__code__
    coroutine.close()


def test_plain_functions_run_in_a_thread_with_the_callers_context_variables() -> None:
    here = contextvars.ContextVar("here", default="nowhere")

    def fn() -> tuple[str, bool]:
        return here.get(), threading.current_thread() is threading.main_thread()

    async def main() -> object:
        here.set("somewhere")
        return await RegisteredFunction(fn).call({}, None)

    assert asyncio.run(main()) == ("somewhere", False)


def test_the_context_is_found_anywhere_and_hidden() -> None:
    async def first(ctx: Context, a: int) -> tuple[object, int]:
        return ctx, a

    async def last(a: int, *, here: Context | None = None) -> tuple[object, int]:
        return here, a

    async def optional(a: int, c: Optional[Context] = None) -> tuple[object, int]:  # noqa: UP045
        return c, a

    async def annotated(c: Annotated[Context, "mine"], a: int) -> tuple[object, int]:
        return c, a

    ctx = Context()
    for fn in (first, last, optional, annotated):
        function = RegisteredFunction(fn)
        assert function.wants_context
        assert function.parameters == ("a",)
        assert run(function, {"a": 1}, ctx) == (ctx, 1)


def test_two_contexts_get_the_same() -> None:
    async def fn(a: Context, b: Context) -> bool:
        return a is b

    assert run(RegisteredFunction(fn), {}, Context()) is True


def test_binding_leaves_the_bound_arguments_to_the_call() -> None:
    async def fn(ctx: Context, a: int) -> int:
        return a

    kwargs: dict[str, object] = {"a": 1}

    async def main() -> None:
        await RegisteredFunction(fn).call(kwargs, Context())

    asyncio.run(main())
    assert kwargs == {"a": 1}


def test_positional_only_parameters_are_passed_by_position() -> None:
    async def fn(a: int, b: int = 2, /, c: int = 3) -> tuple[int, int, int]:
        return a, b, c

    assert run(RegisteredFunction(fn), {"a": 1}) == (1, 2, 3)
    assert run(RegisteredFunction(fn), {"c": 5, "a": 1, "b": 4}) == (1, 4, 5)


class Greeter:
    """Greets."""

    greeting = "hi"

    async def greet(self, name: str) -> str:
        """Say it."""
        return f"{self.greeting} {name}"

    def __call__(self, name: str) -> str:
        return f"called {name}"

    @staticmethod
    def static(name: str) -> str:
        return f"static {name}"

    @classmethod
    def of_class(cls, name: str) -> str:
        return f"{cls.greeting} {name}"


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


def test_methods_partials_and_callable_objects_are_functions_too() -> None:
    greeter = Greeter()

    def two(name: str, mark: str, ctx: Context) -> str:
        """Both."""
        return name + mark

    cases: list[tuple[Callable[..., Any], str, object]] = [
        (greeter.greet, "greet", "hi x"),
        (greeter, "Greeter", "called x"),
        (Greeter.static, "static", "static x"),
        (Greeter.__dict__["static"], "static", "static x"),
        (Greeter.of_class, "of_class", "hi x"),
        (functools.partial(two, mark="!"), "two", "x!"),
        (functools.partial(greeter.greet), "greet", "hi x"),
        (logged(greeter.greet), "greet", "hi x"),
        (logged(two), "two", None),
    ]
    for fn, name, expected in cases:
        function = RegisteredFunction(fn)
        assert function.name == name
        if expected is None:
            assert function.parameters == ("name", "mark")
            continue
        assert function.parameters == ("name",)
        assert run(function, {"name": "x"}) == expected


def test_descriptions_come_from_methods_partials_and_objects() -> None:
    greeter = Greeter()
    described: list[Callable[..., Any]] = [
        greeter.greet,
        functools.partial(greeter.greet),
        logged(greeter.greet),
        greeter,
    ]
    assert [RegisteredFunction(fn).description for fn in described] == ["Say it."] * 3 + ["Greets."]


def test_a_wrapper_that_collects_a_generator_is_a_function() -> None:
    def each(n: int) -> Any:
        yield from range(n)

    @functools.wraps(each)
    def collected(*args: Any, **kwargs: Any) -> list[int]:
        return list(each(*args, **kwargs))

    assert run(RegisteredFunction(collected), {"n": 2}) == [0, 1]


async def _generate() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("fn", "complaint"),
    [
        (Greeter.greet, "a method without its object; register `object.greet`"),
        (Greeter.__dict__["of_class"], "cannot be called"),
        (3, "cannot be called"),
        (lambda: None, "a lambda has no name"),
        (_generate, "is a generator; return a list"),
    ],
)
def test_an_object_that_is_not_callable_is_refused_with_advice(fn: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        RegisteredFunction(fn)


def test_a_callable_without_a_signature_is_refused() -> None:
    with pytest.raises(TypeError, match="has no signature that Python can read"):
        RegisteredFunction(min)


def test_a_closure_over_a_name_that_is_not_bound_yet_is_registered() -> None:
    def fn(a: "Place") -> object:
        return later

    assert RegisteredFunction(fn).parameters == ("a",)
    later = 1
    assert fn(Place(name="x", lat=1)) == later


# Annotations as strings


def test_string_annotations_resolve_also_for_a_context_known_only_to_type_checkers() -> None:
    function = RegisteredFunction(future_annotations.forecast)
    assert function.wants_context
    assert function.parameters == ("place", "days")
    assert function.output_schema is not None
    assert function.output_schema["properties"].keys() == {"name"}


def test_a_class_local_to_the_defining_function_resolves() -> None:
    assert future_annotations.local().parameters == ("item",)


def test_an_unknown_annotation_name_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match="need the name 'Decimal' when it is registered; import it outside"):
        RegisteredFunction(future_annotations.unknown)


# Results


def result_of(annotation: Any, value: object, **options: Any) -> tuple[dict[str, Any] | None, Any]:
    def fn() -> Any: ...

    fn.__annotations__["return"] = annotation
    function = RegisteredFunction(fn, **options)
    structured = function.structure(value)
    if function.output_schema is not None:
        Draft202012Validator.check_schema(function.output_schema)
        assert function.output_schema["type"] == "object"
        Draft202012Validator(function.output_schema).validate(structured)
    if structured is not None:
        assert msgspec.json.decode(msgspec.json.encode(structured)) == structured
    return function.output_schema, structured


class Point(msgspec.Struct):
    x: int


@pytest.mark.parametrize(
    ("annotation", "value", "structured"),
    [
        (Place, Place(name="x", lat=1), {"name": "x", "lat": 1.0}),
        (Place, {"name": "x", "lat": 1}, {"name": "x", "lat": 1}),
        (Span, Span(date(2026, 1, 2)), {"start": "2026-01-02", "days": 1}),
        (Options, {"unit": "m"}, {"unit": "m"}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (dict[str, Any], {"a": Color.RED}, {"a": "red"}),
        (
            Node,
            Node(value=1, children=[Node(value=2)]),
            {"value": 1, "children": [{"value": 2, "children": []}]},
        ),
        (Point, Point(1), {"x": 1}),
        (str, "x", {"result": "x"}),
        (int, 1, {"result": 1}),
        (Annotated[str, Field(description="said")], "x", {"result": "x"}),
        (bool, True, {"result": True}),
        (float, 0.5, {"result": 0.5}),
        (list[int], [1], {"result": [1]}),
        (list[Place], [Place(name="x", lat=1)], {"result": [{"name": "x", "lat": 1.0}]}),
        (Place | None, None, {"result": None}),
        (int | str, "x", {"result": "x"}),
        (Color, Color.BLUE, {"result": "blue"}),
        (date, date(2026, 1, 2), {"result": "2026-01-02"}),
    ],
)
def test_a_return_type_gives_a_schema_that_its_structured_content_fits(
    annotation: Any, value: object, structured: object
) -> None:
    schema, found = result_of(annotation, value)
    assert schema is not None
    assert found == structured


@pytest.mark.parametrize(
    ("annotation", "value", "structured"),
    [
        (None, None, None),
        (Any, "x", None),
        (Any, {"a": date(2026, 1, 2)}, {"a": "2026-01-02"}),
        (dict, {"a": 1}, {"a": 1}),
        (list, [1], None),
        (bytes, b"x", None),
        (TextContent, TextContent(text="x"), None),
        (list[TextContent | Image], [], None),
        (ToolResult, ToolResult(), None),
        (Image | None, None, None),
        (list[Any], [1], None),
    ],
)
def test_content_and_open_types_promise_no_schema(annotation: Any, value: object, structured: object) -> None:
    assert result_of(annotation, value) == (None, structured)


def test_a_subclass_of_a_scalar_is_sent_as_the_scalar() -> None:
    class Name(str):
        __slots__ = ()

    _, structured = result_of(str, Name("x"))
    assert type(structured["result"]) is str


def test_a_ready_output_schema_or_none_at_all() -> None:
    ready = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert result_of(str, {"a": 1}, output_schema=ready) == (ready, {"a": 1})
    assert result_of(str, "x", output_schema=False) == (None, None)


def test_a_return_type_without_a_schema_is_refused_with_advice() -> None:
    class Opaque: ...

    def fn() -> Opaque:
        return Opaque()

    with pytest.raises(TypeError, match=r"return type has no JSON schema.*annotate the return type as `Any`"):
        RegisteredFunction(fn)


def test_importing_functions_does_not_import_pydantic() -> None:
    code = "import sys, limpet.server.functions.registered_function; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@async_test
async def test_cancelling_a_plain_function_abandons_its_thread() -> None:
    entered, leave = threading.Event(), threading.Event()

    def fn() -> None:
        entered.set()
        leave.wait(BOUND)

    task = asyncio.ensure_future(RegisteredFunction(fn).call({}, None))
    await asyncio.to_thread(entered.wait, BOUND)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    leave.set()


def test_typing_generics_are_converted_all_the_way_down() -> None:
    def fn(
        x: Annotated[typing.Optional[dict[str, list[Inner]]], Field(description="deep")] = None,  # noqa: UP045
    ) -> None: ...

    assert RegisteredFunction(fn).bind({"x": {"a": [{"level": "1"}]}}) == {"x": {"a": [{"level": 1}]}}
