"""The plan: every server that a process serves, with its options, and the options of the process."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from limpet.cli.behind import ServerSource
from limpet.cli.options import Options
from limpet.cli.process_options import ProcessOptions
from limpet.errors import ConfigError

_NAME: Final = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,64}")
_PATH: Final = re.compile(r"(?:/(?!\.+(?:/|$))[A-Za-z0-9._~-]+)+/?")


class Endpoint(Struct, frozen=True, kw_only=True):
    """One server of a process."""

    source: ServerSource
    options: Options
    name: str = ""
    """Its name in the file; empty for a target of the command line, which is the only one."""
    where: str = ""
    """The file and the table, for errors."""


class Plan(Struct, frozen=True, kw_only=True):
    """All servers of a process."""

    endpoints: tuple[Endpoint, ...]
    process: ProcessOptions = ProcessOptions()


def chosen(names: Iterable[str], only: tuple[str, ...]) -> list[str]:
    """Return the names that `--only` chooses; all of them without it. The other servers of the file are not read.

    Raises:
        ConfigError: the file has no server of a name that was chosen.
    """
    there = list(names)
    for name in only:
        if name not in there:
            raise ConfigError(f"--only {name}: the file has no such server; it has {', '.join(there)}")
    return [name for name in there if not only or name in only]


def path_of(name: str, path: str | None, where: str) -> str:
    """Return the path of a server of a file: the given one, or /NAME/mcp.

    Raises:
        ConfigError: the path, or the name, cannot be part of a URL as it is.
    """
    if path is None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{where} the name cannot be part of a path: use letters, digits, '.', '_' and '-', or set path"
            )
        return f"/{name}/mcp"
    if not _PATH.fullmatch(path):
        raise ConfigError(
            f"{where} path must begin with a slash and have letters, digits, '.', '_', '~' and '-' between slashes"
        )
    return path
