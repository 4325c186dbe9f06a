"""Values of a file into structures, strictly.

An error names the file, the table and the key, and says which values are allowed.

An error never shows a value: it may be a secret.
"""

import difflib
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from limpet.cli.rows import OptionRow
from limpet.errors import ConfigError

S = TypeVar("S", bound=Struct)

_WORDS: Final = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


_TABLES: Final = (dict, Mapping)


def decoded(kind: type[S], table: Mapping[str, Any], where: str) -> S:
    """Return a table of a file as a structure. `where` names the file and the table.

    Raises:
        ConfigError: a key is unknown, or a value is not allowed.
    """
    hints = get_type_hints(kind, include_extras=True)
    known(table, hints, where)
    return kind(**{key: _converted(value, hints[key], f"{where} {key}") for key, value in table.items()})


def known(keys: Iterable[str], allowed: Iterable[str], where: str) -> None:
    """Refuse a key that does not exist.

    Raises:
        ConfigError: a key is unknown.
    """
    names = sorted(allowed)
    for key in keys:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f": did you mean {near[0]}?" if near else "."
            raise ConfigError(f"{where} the key {key[:64]} is unknown{hint} Allowed are {', '.join(names)}")


def _converted(value: Any, hint: Any, where: str) -> Any:
    row = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, OptionRow)), None)
    if row is not None and row.settings is not None:
        return settings(row.settings, value, where)
    if isinstance(kind := bare(hint), type) and issubclass(kind, Struct):
        return kind(**settings(kind, value, where))
    if isinstance(value, dict) and get_origin(bare(hint)) in _TABLES:
        inner = get_args(bare(hint))[1]
        return {key: _converted(one, inner, f"{where}.{key}") for key, one in value.items()}
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        raise ConfigError(f"{where} must be {_but(_allowed(hint), value)}") from None


def settings(kind: type[Struct], value: Any, where: str) -> dict[str, Any]:
    """Check a table of settings; return it as it is, because only the members that it has count.

    Raises:
        ConfigError: a key is unknown, or a value is not allowed.
    """
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be {_but('a table', value)}")
    hints = get_type_hints(kind)
    known(value, hints, f"{where}:")
    given = {key: _converted(one, hints[key], f"{where}.{key}") for key, one in value.items()}
    try:
        kind(**given)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return given


def bare(hint: Any) -> Any:
    """Return a type without `Annotated` and without `| None`, except that limits of numbers stay."""
    if get_origin(hint) is Annotated and not any(isinstance(one, Meta) for one in hint.__metadata__):
        return bare(hint.__origin__)
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [one for one in get_args(hint) if one is not type(None)]
        return bare(kinds[0]) if len(kinds) == 1 else hint
    return hint


def _allowed(hint: Any) -> str:
    kind = bare(hint)
    if get_origin(kind) is Annotated:
        least = next(meta.ge for meta in kind.__metadata__ if isinstance(meta, Meta))
        return f"{_WORDS[kind.__origin__]} of {least} or more"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is Collection:
        return "a list of texts"
    if get_origin(kind) is tuple:
        inner = _WORDS[get_args(kind)[0]].removeprefix("a ")
        return f"a list of {inner}s" if get_args(kind)[-1] is ... else f"a list of two {inner}s"
    if get_origin(kind) is Mapping:
        return "a table"
    return "a table of texts" if get_origin(kind) is dict else _WORDS.get(kind, "another value")


def _but(allowed: str, value: Any) -> str:
    """Return the allowed values and, if it helps, the kind of the given value."""
    word = _WORDS.get(type(value))
    says_nothing = word is None or allowed.startswith((word, "one of"))
    return allowed if says_nothing else f"{allowed}, not {word}"
