"""`holdfast.toml`: the options of the process, options for all servers, and a table for each server.

It is read strictly. Secrets are not in it: they come from files and from environment variables.
"""

import tomllib
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from holdfast.cli.behind import Source, check_fit
from holdfast.cli.collecting import laid_over
from holdfast.cli.config.decoding import decoded, known
from holdfast.cli.config.literals import literals
from holdfast.cli.config.plan import Endpoint, Plan, chosen, path_of
from holdfast.cli.config.variables import expanded
from holdfast.cli.options import Options
from holdfast.cli.process_options import ProcessOptions
from holdfast.cli.rows import FILE, rows
from holdfast.errors import ConfigError
from holdfast.server.running.namespaces import namespace_of

_SERVERS: Final = "servers"
_PROCESS: Final = ProcessOptions.__struct_fields__
_SHARED: Final[tuple[str, ...]] = tuple(name for name, row in rows(Options).items() if FILE in row.fits)
_BACKS: Final = ("command", "url", "object")
_FROM_VARIABLE: Final = 'write no secret into this file; take it from an environment variable: "${NAME}"'
_INSTEAD: Final = {
    "headers": _FROM_VARIABLE,
    "env": _FROM_VARIABLE,
    "store": "write no password into this file; leave out the store and set HOLDFAST_STORE, or take it from an environment "
    'variable: "${NAME}"',
    "url": 'write no user and password into this file; take the URL from an environment variable: "${NAME}"',
}
"""The right way for a secret that is written out."""


class ServerTable(Options, frozen=True, kw_only=True):
    """The table of one server: its options, and one of the three keys that name its source."""

    command: tuple[str, ...] | None = None
    url: str | None = None
    object: str | None = None


def read_toml(file: Path, only: tuple[str, ...] = ()) -> Plan:
    """Read a `holdfast.toml`: all of its servers, or only those of some names.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    servers = content.pop(_SERVERS, None)
    if not isinstance(servers, dict) or not servers:
        raise ConfigError(f"{file} names no server: it needs a table [servers.NAME] for each")
    _refuse_misplaced(
        content.keys() - _SHARED, ServerTable, f"{file}:", "in the table of a server, [servers.NAME]"
    )
    known(content, (*_PROCESS, *_SHARED, _SERVERS), f"{file}:")
    _refuse_literals(content, f"{file}:")
    content = expanded(content, f"{file}:", {})
    directory = file.resolve().parent
    process = decoded(ProcessOptions, {key: content[key] for key in _PROCESS if key in content}, f"{file}:")
    shared = decoded(Options, {key: content[key] for key in _SHARED if key in content}, f"{file}:")
    shared = _beside(shared, directory)
    return Plan(
        process=replace(process, **_absolute(process, directory)),
        endpoints=tuple(_endpoint(name, servers[name], shared, file) for name in chosen(servers, only)),
    )


def _endpoint(name: str, table: Any, shared: Options, file: Path) -> Endpoint:
    where = f"{file}: [servers.{name}]"
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table")
    if "token" in table:
        raise ConfigError(f"{where} token: write no secret into this file; use token_file or token_env")
    _refuse_misplaced(
        table.keys(), ProcessOptions, where, "at the top of the file, because it is for the process"
    )
    _refuse_literals(table, where)
    server = decoded(ServerTable, expanded(table, where, {}), where)
    said = [one for one in _BACKS if getattr(server, one)]
    if len(said) != 1:
        raise ConfigError(
            f"{where} needs one of command, url and object; it has {' and '.join(said) or 'none'}"
        )
    source = Source(
        command=server.command or (),
        url=server.url or "",
        object=server.object or "",
        directory=str(file.resolve().parent),
    )
    given = Options(**{member: getattr(server, member) for member in Options.__struct_fields__})
    check_fit(given, source.kind, where)
    own = Options(path=path_of(name, server.path, where), namespace=namespace_of(name))
    options = laid_over(laid_over(shared, own), _beside(given, Path(source.directory)))
    return Endpoint(name=name, where=where, source=source, options=options)


def _refuse_misplaced(keys: AbstractSet[str], other: type[Struct], where: str, place: str) -> None:
    """Refuse a key that exists, but in another table."""
    if misplaced := sorted(keys & set(other.__struct_fields__)):
        raise ConfigError(f"{where} the key {misplaced[0]} is in the wrong table: write it {place}")


def _refuse_literals(table: dict[str, Any], where: str) -> None:
    """Refuse a secret that is written into the file."""
    for kind, name in literals(table):
        raise ConfigError(f"{where} {kind}{name and f'.{name}'}: {_INSTEAD[kind]}")


def _beside(options: Options, directory: Path) -> Options:
    """Return the options of a server whose relative paths begin at the directory of the file."""
    absolute = _absolute(options, directory)
    if options.store is not None:
        absolute["store"] = _store_beside(options.store, directory)
    if options.verifier is not None:
        place, colon, name = options.verifier.rpartition(":")
        absolute["verifier"] = f"{directory / place if place.endswith('.py') else place}{colon}{name}"
    return replace(options, **absolute)


def _absolute(options: Struct, directory: Path) -> dict[str, str]:
    paths = [name for name, row in rows(type(options)).items() if row.metavar == "PATH"]
    return {name: str(directory / path) for name in paths if (path := getattr(options, name)) is not None}


def _store_beside(store: str, directory: Path) -> str:
    place = store.removeprefix("sqlite:")
    path = place.removeprefix("///")
    if place == store or path.startswith("/") or not path:
        return store
    return f"sqlite:///{quote(str(directory))}/{path}"
