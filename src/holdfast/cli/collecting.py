"""Words of the command line, and variables, as options of the table."""

import types
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from msgspec import Meta, Struct

from holdfast.cli.options import Entry, entries
from holdfast.errors import ConfigError

S = TypeVar("S", bound=Struct)


def collected(kind: type[S], given: dict[str, Any]) -> S:
    """Return the options that the command line or the environment gave.

    Raises:
        ConfigError: a value has not the form NAME=VALUE.
    """
    known: dict[str, Any] = {}
    for entry in entries(kind):
        value = given.get(entry.parameter)
        if value is None or value in ("", [], ()):
            continue
        if len(entry.place) > 1:
            known.setdefault(entry.place[0], {})[entry.place[1]] = value
        else:
            known[entry.place[0]] = _whole(value, entry)
    return kind(**known)


def readable(kind: Any) -> tuple[Any, float | None]:
    """Return the type as the command line knows it, and the least value. A list and a table are options that may be repeated."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    least = None
    if get_origin(kind) is Annotated:
        least = next(meta.ge for meta in kind.__metadata__ if isinstance(meta, Meta))
        kind = kind.__origin__
    return list[str] if get_origin(kind) in (tuple, dict) else kind, least


def _whole(value: Any, entry: Entry) -> Any:
    if not isinstance(value, list | tuple):
        return value
    is_table = any(get_origin(one) is dict for one in get_args(entry.type))
    return _pairs(value, entry.flag) if is_table else tuple(value)


def _pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            # The value may be a secret: it is not repeated.
            raise ConfigError(f"{option} takes NAME=VALUE, not {name[:64]!r}")
        pairs[name.strip()] = value
    return pairs
