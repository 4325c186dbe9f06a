"""Words of the command line, and variables, as options of the table."""

import contextlib
import re
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from limpet.cli.rows import OptionEntry, entries
from limpet.errors import ConfigError

S = TypeVar("S", bound=Struct)

_NEXT_NAME: Final = re.compile(r"\s+(?=[\w.-]+=)")
"""The space before the next NAME=VALUE. A value may have spaces too: `10/m per principal`."""


def collected(
    kind: type[S],
    given: dict[str, Any],
    named: Callable[[OptionEntry], str | None] = lambda entry: entry.flag,
) -> S:
    """Return the options that the command line or the environment gave.

    `named` returns the name of an option for an error.

    Raises:
        ConfigError: a value has not the form NAME=VALUE.
    """
    known: dict[str, Any] = {}
    for entry in entries(kind):
        value = given.get(entry.parameter)
        if value is None or value in ("", [], ()):
            continue
        if len(entry.place) > 1:
            read = entry.row.read
            known.setdefault(entry.place[0], {})[entry.place[1]] = value if read is None else read(value)
        elif entry.is_table:
            name = named(entry) or entry.flag
            known.setdefault(entry.place[0], {}).update(_settings(pairs(value, name) or {}, entry, name))
        else:
            read = entry.row.read
            known[entry.place[0]] = _whole(value, entry) if read is None else read(value)
    return kind(**known)


def laid_over(low: S, high: S) -> S:
    """Return the options of `high`, and those of `low` that `high` does not have. Tables of settings are merged."""
    merged: dict[str, Any] = {}
    for name in high.__struct_fields__:
        below, above = getattr(low, name), getattr(high, name)
        both = isinstance(below, dict) and isinstance(above, dict)
        merged[name] = {**below, **above} if both else below if above is None else above
    return type(high)(**merged)


def tables(kind: type[S], environment: Mapping[str, str]) -> S:
    """Return the tables of settings that variables give: `LIMPET_LIMIT="running=32 queued=100"`.

    They are not read with the other variables, because here each key counts for itself: one on the command line
    replaces the same one of the variable, and the others stay.

    Raises:
        ConfigError: a name or a value is not allowed.
    """
    return collected(
        kind,
        {
            entry.parameter: _NEXT_NAME.split(text)
            for entry in entries(kind)
            if entry.is_table and (text := environment.get(entry.variable or "", "").strip())
        },
        lambda entry: entry.variable,
    )


def _settings(texts: dict[str, str], entry: OptionEntry, named: str) -> dict[str, Any]:
    """Return the settings of a table from their texts, checked as those of a file are."""
    from limpet.cli.config.file_values import settings  # noqa: PLC0415 - it is needed for these options only

    given: dict[str, Any] = {}
    hints = get_type_hints(entry.row.settings)
    for name, text in texts.items():
        if name in (entry.row.members or ()) or name in entry.row.taken:
            raise ConfigError(f"{named} {name}: it has an option of its own, --{name.replace('_', '-')}")
        table, is_inner, key = name.partition(".")
        if is_inner and not (table and key):
            raise ConfigError(f"{named} {name}: write a name on both sides of the dot")
        if is_inner:
            given.setdefault(table, {})[key] = text
        else:
            given[name] = _number(text, hints.get(name))
    return settings(entry.row.settings, given, f"{named}: {entry.key}")


def _number(text: str, hint: Any) -> Any:
    """Return a text as the number, or the two numbers, that a setting is; the text itself if it is not a number."""
    with contextlib.suppress(ValueError):
        if get_origin(hint) is tuple:
            return tuple(map(float, text.split(",")))
        if hint is int:
            return int(text)
        if float in (hint, *get_args(hint)):
            return float(text)
    return text


def readable(kind: Any) -> tuple[Any, float | None]:
    """Return the type as the command line knows it, and the least value.

    A list and a table are options that may be repeated.
    """
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    least = None
    if get_origin(kind) is Annotated:
        least = next(meta.ge for meta in kind.__metadata__ if isinstance(meta, Meta))
        kind = kind.__origin__
    return list[str] if get_origin(kind) in (tuple, dict) else kind, least


def _whole(value: Any, entry: OptionEntry) -> Any:
    if not isinstance(value, list | tuple):
        return value
    is_table = any(get_origin(one) is dict for one in get_args(entry.type))
    return pairs(value, entry.flag) if is_table else tuple(value)


def pairs(texts: Iterable[str] | None, option: str) -> dict[str, str] | None:
    """Return the values of an option such as --header NAME=VALUE; None if it is not given.

    Raises:
        ConfigError: a text has another form.
    """
    found: dict[str, str] = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            # It may be a secret, as in 'Authorization: Bearer …': it is not repeated.
            raise ConfigError(f"{option} takes NAME=VALUE")
        found[name.strip()] = value
    return found or None
