"""Arguments as words of the command line: `key=value`, typed by the tool's schema.

The value is a text if the schema of the member says string, else JSON: `count=3`, `tags='["a","b"]'`. `key:=JSON` is
JSON for every schema. `@file` reads the value from a file. A word without `=` is refused with the form that is right.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from limpet.cli.using.plain import plain
from limpet.cli.using.schemas import choices_of, kinds_of, properties_of, required_of
from limpet.errors import ConfigError

_WORD: Final = re.compile(r"([^=:@\s]+)(:?=)(.*)", re.DOTALL)
_TRUE: Final = ("true", "yes", "y", "on")
_BOOLEANS: Final = dict.fromkeys(_TRUE, True) | dict.fromkeys(("false", "no", "n", "off"), False)
_NAMES: Final = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "a text",
    "array": "a list as JSON",
    "object": "an object as JSON",
}
"""The types of JSON schema as an error names them."""
_NOT_JSON: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
_MOST_BYTES: Final = 16 * 1024 * 1024


def typed(words: Iterable[str], schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the arguments for a tool, or for a prompt.

    Raises:
        ConfigError: a word has the wrong form, its value the wrong type, or a required argument is missing.
    """
    properties = properties_of(schema)
    found: dict[str, Any] = {}
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None:
            raise ConfigError(f"{word!r} is not an argument: write key=value, or key:=JSON")
        key, sign, text = match.groups()
        if properties and key not in properties and schema.get("additionalProperties") is not True:
            raise ConfigError(f"{name} has no argument {key!r}; it has {', '.join(map(plain, properties))}")
        if key in found:
            raise ConfigError(f"the argument {key!r} is given twice")
        given = _text(text)
        found[key] = _json(key, given) if sign == ":=" else value_of(key, given, properties.get(key, {}))
    missing = [key for key in required_of(schema) if key not in found]
    if missing:
        known = ", ".join(_shown(key, properties.get(key, {})) for key in missing)
        raise ConfigError(f"{name} needs {known}")
    return found


def _text(text: str) -> str:
    if not text.startswith("@"):
        return text
    path = Path(text[1:])
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{path} is larger than {_MOST_BYTES // 1024 // 1024} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text in UTF-8") from None


def value_of(key: str, text: str, schema: Mapping[str, Any]) -> Any:
    """Return the value of a text: the first type of the schema that it fits.

    Raises:
        ConfigError: it fits none.
    """
    if allowed := choices_of(schema):
        return _one_of(key, text, allowed)
    kinds = kinds_of(schema)
    if "boolean" in kinds and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if kinds == {"string"}:
        return text
    try:
        value = msgspec.json.decode(text)
    except _NOT_JSON:
        fits = not kinds
    else:
        if not kinds or kinds & _kinds(value):
            return value
        fits = False
    if fits or "string" in kinds:
        return text
    raise _wrong(key, text, kinds)


def _json(key: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except _NOT_JSON as error:
        raise ConfigError(f"{key}:={text[:60]} is not JSON: {error}") from None


def _wrong(key: str, text: str, kinds: Iterable[str]) -> ConfigError:
    wanted = " or ".join(_NAMES.get(kind, plain(kind)) for kind in sorted(kinds))
    return ConfigError(f"{key}={text[:60]}: {key} must be {wanted}")


def _one_of(key: str, text: str, allowed: Sequence[Any]) -> Any:
    """Return the allowed value that a text is: a text as it is, any other value as JSON."""
    for value in allowed:
        if text == (value if isinstance(value, str) else msgspec.json.encode(value).decode()):
            return value
    raise ConfigError(f"{key} must be one of {', '.join(map(plain, allowed))}, not {text[:60]!r}")


def _kinds(value: object) -> set[str]:
    """Return the types of JSON schema that a value has."""
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}


def _shown(key: str, schema: Mapping[str, Any]) -> str:
    kinds = kinds_of(schema)
    return plain(f"{key}=<{'|'.join(sorted(kinds)) or 'value'}>")
