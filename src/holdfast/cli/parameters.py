"""The table of options as parameters of the command line."""

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from msgspec import Struct

from holdfast.cli.collecting import readable
from holdfast.cli.options import BEHIND, entries

_BEHIND_PANEL: Final = "The server behind a URL or a command"


def parameters(kind: type[Struct]) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each option of a structure, as typer reads them from a signature."""
    for entry in entries(kind):
        annotation, least = readable(entry.type)
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
