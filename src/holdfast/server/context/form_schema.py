"""The JSON schema and the reader of a form, by pydantic. Imported when the first form is made."""

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from holdfast.server.functions.schema import with_typing_extensions

Schema = dict[str, Any]


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
