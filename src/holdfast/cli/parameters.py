"""The table of options as parameters of the command line."""

import inspect
import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import typer
from msgspec import Meta, Struct

from holdfast.cli.options import BEHIND, Entry, entries
from holdfast.errors import ConfigError

S = TypeVar("S", bound=Struct)

_BEHIND_PANEL: Final = "The server behind a URL or a command"


def parameters(kind: type[Struct]) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each option of a structure, as typer reads them from a signature."""
    for entry in entries(kind):
        annotation, least = _readable(entry.type)
        option: Any = typer.Option(
            f"{entry.flag}/--no-{entry.flag.removeprefix('--')}" if annotation is bool else entry.flag,
            help=entry.row.help,
            metavar=entry.row.metavar,
            envvar=entry.variable,
            show_envvar=False,
            show_default=entry.row.default or False,
            min=least,
            rich_help_panel=_BEHIND_PANEL if set(entry.row.fits) <= set(BEHIND) else None,
        )
        yield inspect.Parameter(
            entry.parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[annotation | None, option],
        )


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


def _readable(kind: Any) -> tuple[Any, float | None]:
    """Return the type as typer knows it, and the least value. A list and a table are options that may be repeated."""
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
