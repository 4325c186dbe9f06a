"""JSON schemas and validators from annotations, by pydantic. Imported when the first function is registered.

Everything runs once per function, except the returned `validate` and `structure` callables, and `problems`, which
explains invalid arguments to the model.
"""

import difflib
import inspect
import re
import reprlib
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import UnionType
from typing import Annotated, Any, Final, NotRequired, Required, Union

import msgspec
import typing_extensions
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, PydanticSerializationError, to_jsonable_python

from limpet.errors import WrongResult
from limpet.protocol.wrapping import wrapped
from limpet.server.functions.json_schema import LIMITS, misfits
from limpet.server.functions.returned import check_open, refuse_file
from limpet.server.functions.signature import Parameter

Schema = dict[str, Any]
Structure = Callable[[object], dict[str, Any] | None]

MAX_PROBLEMS: Final = 10
_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = 60
_shorten.maxlist = _shorten.maxdict = 3
_shorten.maxlevel = 2


class Arguments(msgspec.Struct, frozen=True):
    """The parameters of a function that the client fills in."""

    schema: Schema
    validate: Callable[[Mapping[str, object]], dict[str, object]]
    """Returns those arguments that were given, converted; raises ValidationError."""


class _Generator(GenerateJsonSchema):
    """Generates schemas without titles of properties, which would repeat their names."""

    @typing_extensions.override
    def field_title_should_be_set(self, schema: CoreSchema | Any) -> bool:
        return False


def arguments(parameters: Sequence[Parameter], described: Mapping[str, str]) -> Arguments:
    """Build the schema and validator of these parameters; `described` are descriptions from a docstring.

    Raises:
        TypeError: if a parameter's type has no JSON schema; the message names it.
    """
    fields: dict[str, Any] = {}
    for parameter in parameters:
        annotation = with_typing_extensions(parameter.annotation)
        is_field = isinstance(parameter.default, FieldInfo)
        if is_field:
            annotation = Annotated[annotation, parameter.default]
        has_default = _field_has_default(annotation) or (parameter.has_default and not is_field)
        fields[parameter.name] = NotRequired[annotation] if has_default else annotation
    adapter, schema = _shape(fields)
    return Arguments(_adjusted(schema, parameters, described), adapter.validator.validate_python)


def _shape(fields: dict[str, Any]) -> tuple[TypeAdapter[Any], Schema]:
    try:
        adapter = TypeAdapter[Any](_typed_dict("Arguments", fields, config={"extra": "forbid"}))
        return adapter, _json_schema(adapter, "validation")
    except (PydanticUserError, PydanticSchemaGenerationError) as error:
        if len(fields) == 1:
            raise TypeError(
                f"parameter {next(iter(fields))!r} has a type that JSON cannot carry: {_reason(error)}"
            ) from error
        for name, annotation in fields.items():  # try each alone, to name the invalid one
            _shape({name: annotation})
        raise


def _reason(error: Exception) -> str:
    """Return pydantic's words without its advice, which is for its own models."""
    first = str(error).splitlines()[0]
    unknown = _UNKNOWN.match(first)
    if unknown is None:
        return first
    name = re.sub(r"^<class '(?:\w+\.)*(.+)'>$", r"\1", unknown[1])
    return f"{name} is not a pydantic model, a dataclass, a TypedDict, a msgspec.Struct or a plain type"


_UNKNOWN: Final = re.compile(r"Unable to generate pydantic-core schema for (.+?)\. Set ")


def _field_has_default(annotation: Any) -> bool:
    metadata = getattr(annotation, "__metadata__", ())
    return any(isinstance(item, FieldInfo) and not item.is_required() for item in metadata)


def _adjusted(schema: Schema, parameters: Sequence[Parameter], described: Mapping[str, str]) -> Schema:
    properties: dict[str, Schema] = schema.get("properties", {})
    for parameter in parameters:
        entry = properties.get(parameter.name)
        if entry is None:
            continue
        if parameter.name in described:
            entry.setdefault("description", described[parameter.name])
        if parameter.has_default and not isinstance(parameter.default, FieldInfo):
            _set_default(entry, parameter.default)
    ordered: Schema = {"type": "object", "properties": properties}
    return ordered | {key: schema[key] for key in ("required", "$defs") if key in schema}


def _set_default(entry: Schema, default: object) -> None:
    try:
        entry["default"] = to_jsonable_python(default)
    except PydanticSerializationError:
        return  # The default has no JSON form. The property is optional, which is enough.


def _json_schema(adapter: TypeAdapter[Any], mode: typing.Literal["validation", "serialization"]) -> Schema:
    return adapter.json_schema(mode=mode, by_alias=True, schema_generator=_Generator)


# Results


class Output(msgspec.Struct, frozen=True):
    """How the value of a function becomes structured content."""

    schema: Schema
    structure: Structure
    """Checks the value against the declared type, and converts it; raises WrongResult."""
    wraps: bool
    """The value is not an object, and is wrapped as `{"result": value}`."""


def output(annotation: Any) -> Output:
    """Return the schema of a result type, and the functions that make structured content.

    Raises:
        TypeError: the type has no JSON schema.
    """
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        schema, structure = _direct(msgspec.json.schema(annotation)), partial(_checked_struct, annotation)
        return Output(schema, structure, wraps=False)
    try:
        adapter = _adapter(with_typing_extensions(annotation))
        schema = _json_schema(adapter, "serialization")
    except (PydanticUserError, PydanticSchemaGenerationError) as error:
        raise TypeError(
            f"its return type has no JSON schema: {_reason(error)}; annotate the return type as `Any` to have no output schema"
        ) from error
    dump, validate = adapter.serializer.to_python, adapter.validator.validate_python
    check = check_open if _has(schema, _is_open) else refuse_file
    # pydantic checks the limits of members of a dataclass, or of a changed model, for no object that exists already.
    has_limits = _has(schema, _is_limited)

    def checked(value: object) -> Any:
        check(value)
        try:
            plain = dump(validate(value), mode="json", by_alias=True, warnings="error", fallback=_foreign)
        except (ValidationError, PydanticSerializationError) as error:
            raise WrongResult(f"it does not return {shown_type(annotation)}: {_misfit(error)}") from None
        if has_limits and (wrong := "; ".join(misfits(plain, schema))):
            raise WrongResult(f"it does not return {shown_type(annotation)}: {wrong}")
        return plain

    direct = _direct(schema)
    if direct.get("type") == "object":
        return Output(direct, checked, wraps=False)
    return Output(wrapped(schema), lambda value: {"result": checked(value)}, wraps=True)


_TYPED: Final = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"})


def _is_open(schema: Any) -> bool:
    """True for a schema that allows any value."""
    return schema is True or (isinstance(schema, dict) and not schema.keys() & _TYPED)


def _is_limited(schema: Any) -> bool:
    """True for a schema that allows only some values of its type."""
    return isinstance(schema, dict) and bool(schema.keys() & LIMITS.keys())


def _has(schema: Any, asked: Callable[[Any], bool]) -> bool:
    """True if the answer is true for a schema, or for one inside of it."""
    if asked(schema):
        return True
    if not isinstance(schema, dict):
        return False
    inner = [schema.get(key) for key in ("items", "additionalProperties") if key in schema]
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        inner.extend(schema.get(key, ()))
    for key in ("properties", "$defs", "patternProperties"):
        inner.extend(schema.get(key, {}).values())
    return any(_has(one, asked) for one in inner)


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        # NaN in a value of any type stays NaN, and is found later; by default it would be None.
        return TypeAdapter[Any](annotation, config={"ser_json_inf_nan": "constants"})
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter[Any](annotation)


def _checked_struct(kind: type[msgspec.Struct], value: object) -> Any:
    plain = msgspec.to_builtins(value)
    try:
        msgspec.convert(plain, kind, strict=False)
    except msgspec.ValidationError as error:
        raise WrongResult(f"it does not return {shown_type(kind)}: {error}") from None
    return plain


_UNEXPECTED: Final = re.compile(
    r"Expected `(?P<type>[^`]+)`.*?\[(?:field_name='(?P<field>\w+)', )?input_value=(?P<value>.*), input_type=\w+\]",
    re.DOTALL,
)


def _misfit(error: ValidationError | PydanticSerializationError) -> str:
    """Return the field that does not fit, the type that was expected, and the value."""
    if isinstance(error, ValidationError):
        return "; ".join(problems(error, (), "returned"))
    found = _UNEXPECTED.search(str(error))
    if found is None:
        return str(error)
    field = f"{found['field']}: " if found["field"] else ""
    return f"{field}Input should be of type {found['type']}; returned {found['value']}"


def shown_type(annotation: Any) -> str:
    """Return a type as its author has written it, without modules."""
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(annotation))


def _direct(schema: Schema) -> Schema:
    """Replace a reference at the top by its definition: the protocol requires `type` there."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    definition = schema.get("$defs", {}).get(name)
    if definition is None:
        return schema
    # Other definitions, or this one itself, may still refer to it.
    is_used = str(schema["$defs"]).count(f"'#/$defs/{name}'") > 0 or len(schema["$defs"]) > 1
    return {**definition, "$defs": schema["$defs"]} if is_used else dict(definition)


def to_plain(value: object) -> Any:
    """Return the value as plain JSON data. Raises TypeError if it cannot be encoded as JSON."""
    try:
        return to_jsonable_python(value, by_alias=True, fallback=_foreign)
    except (PydanticSerializationError, TypeError) as error:
        raise TypeError(f"{type(value).__name__} has no JSON form: {error}") from error


def _foreign(value: object) -> Any:
    return msgspec.to_builtins(value)


# Invalid arguments


def problems(error: ValueError, known: Sequence[str], verb: str = "given") -> tuple[str, ...]:
    """Return one line for each invalid value: its name, the value after the verb, and a valid one."""
    if not isinstance(error, ValidationError):
        return (str(error),)
    found = error.errors(include_url=False, include_context=False)
    lines = [_problem(item, known, verb) for item in found[:MAX_PROBLEMS]]
    if len(found) > MAX_PROBLEMS:
        lines.append(f"and {len(found) - MAX_PROBLEMS} more")
    return tuple(lines)


def _problem(item: Any, known: Sequence[str], verb: str) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"]).lstrip(".")
    if item["type"] == "extra_forbidden" and len(item["loc"]) == 1:
        near = difflib.get_close_matches(place[:100], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
        return f"{place[:100]}: unknown argument; {hint}"
    if item["type"] == "missing":
        return f"{place}: missing, but required"
    if item["type"] == "dict_type" and not place:
        return "the arguments are not an object"
    text = f"{item['msg']}; {verb} {_shorten.repr(item['input'])}"
    return f"{place}: {text}" if place else text


# Forms


def form_of(shape: Any) -> tuple[Schema, Callable[[Any], Any]]:
    """Return the schema of a type without a reference at its top, and the reader of an answer.

    Raises:
        TypeError: if the type has no JSON schema.
    """
    try:
        adapter = TypeAdapter[Any](with_typing_extensions(shape))
        schema = adapter.json_schema(by_alias=True)
    except (PydanticUserError, PydanticSchemaGenerationError) as error:
        raise TypeError(f"{shape!r} has no JSON schema: {str(error).splitlines()[0]}") from error
    definitions = schema.get("$defs", {})
    top = definitions.get(str(schema.get("$ref", "")).removeprefix("#/$defs/"), schema)
    return {**top, "$defs": definitions}, adapter.validate_python


# typing.TypedDict


def with_typing_extensions(annotation: Any, path: tuple[Any, ...] = ()) -> Any:
    """Replace `typing.TypedDict` classes by equal ones of typing_extensions, which pydantic needs before 3.12."""
    if sys.version_info >= (3, 12):
        return annotation
    if typing.is_typeddict(annotation):
        return _converted(annotation, path) if type(annotation).__module__ == "typing" else annotation
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if not args or origin is typing.Literal:
        return annotation
    changed = tuple(
        with_typing_extensions(item, path) if not isinstance(item, list) else item
        for item in (args[:1] if origin is Annotated else args)
    )
    if all(new is old for new, old in zip(changed, args, strict=False)):
        return annotation
    if origin is Annotated:
        return Annotated[(changed[0], *annotation.__metadata__)]
    if origin in (Union, UnionType):
        return Union[changed]  # noqa: UP007  # built at run time
    return origin[changed]


def _converted(shape: Any, path: tuple[Any, ...]) -> Any:
    if shape in path:
        raise TypeError(f"{shape.__name__} contains itself; import TypedDict from typing_extensions for that")
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(shape, include_extras=True).items():
        wrapper = typing.get_origin(hint)
        inner = typing.get_args(hint)[0] if wrapper in (Required, NotRequired) else hint
        is_required = wrapper is Required or (wrapper is not NotRequired and name in shape.__required_keys__)
        inner = with_typing_extensions(inner, (*path, shape))
        fields[name] = Required[inner] if is_required else NotRequired[inner]
    return _typed_dict(
        shape.__name__, fields, config=getattr(shape, "__pydantic_config__", None), doc=shape.__doc__
    )


def _typed_dict(name: str, fields: dict[str, Any], *, config: Any = None, doc: str | None = None) -> Any:
    make: Any = typing_extensions.TypedDict
    shape = make(name, fields)
    shape.__doc__ = doc
    if config is not None:
        shape.__pydantic_config__ = config
    return shape
