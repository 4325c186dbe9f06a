"""`limpet.toml`: the options of the process, options for all servers, and a table for each server.

It is read strictly. Secrets are not in it: they come from files and from environment variables.
"""

import tomllib
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from limpet.cli.behind import FilePart, ServerSource, check_fit
from limpet.cli.behind_options import BehindOptions, ShownComponentOptions
from limpet.cli.config.file_values import decoded, known
from limpet.cli.config.literals import literals
from limpet.cli.config.plan import Endpoint, Plan, chosen, path_of
from limpet.cli.config.variables import expanded
from limpet.cli.option_values import laid_over
from limpet.cli.options import Options
from limpet.cli.process_options import ProcessOptions
from limpet.cli.rows import FILE, rows
from limpet.errors import ConfigError
from limpet.server.running.namespaces import namespace_of

_SERVERS: Final = "servers"
_PROCESS: Final = ProcessOptions.__struct_fields__
_SHARED: Final[tuple[str, ...]] = tuple(name for name, row in rows(Options).items() if FILE in row.fits)
_BACKS: Final = ("command", "url", "object", "servers")
OF_PARTS: Final = BehindOptions.__struct_fields__
"""The options of a server that is a part of another one."""
_FROM_VARIABLE: Final = 'write no secret into this file; take it from an environment variable: "${NAME}"'
_INSTEAD: Final = {
    "headers": _FROM_VARIABLE,
    "env": _FROM_VARIABLE,
    "store": "write no password into this file; leave out the store and set LIMPET_STORE, or take it from an environment "
    'variable: "${NAME}"',
    "url": 'write no user and password into this file; take the URL from an environment variable: "${NAME}"',
}
"""The right way for a secret that is written out."""


class ServerTable(Options, frozen=True, kw_only=True):
    """The table of one server: its options, and one of the four keys that name its source."""

    command: tuple[str, ...] | None = None
    url: str | None = None
    object: str | None = None
    servers: tuple[str, ...] | None = None
    """The names of the servers that it is made of."""
    prefixes: dict[str, str] | None = None
    """By their names: the prefixes of the names of their components. Default: the name of the server."""


def read_toml(file: Path, only: tuple[str, ...] = ()) -> Plan:
    """Read a `limpet.toml`: all of its servers, or only those of some names.

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
        endpoints=tuple(
            _endpoint(name, servers, shared, file)
            for name in chosen(servers, only)
            if name in only or _has_address(name, servers)
        ),
    )


def _has_address(name: str, servers: dict[str, Any]) -> bool:
    """True if a server is served by itself: it is no part of another one, or its table has a path."""
    tables = [table for table in servers.values() if isinstance(table, dict)]
    is_part = any(name in parts for table in tables if isinstance(parts := table.get(_SERVERS), list))
    return not is_part or (isinstance(servers[name], dict) and "path" in servers[name])


def _read_table(name: str, servers: dict[str, Any], file: Path) -> tuple[ServerTable, ServerSource, str]:
    """Return the table of a server, its source without parts, and the place of the table."""
    table, where = servers[name], f"{file}: [servers.{name}]"
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
            f"{where} needs one of command, url, object and servers; it has {' and '.join(said) or 'none'}"
        )
    source = ServerSource(
        command=server.command or (),
        url=server.url or "",
        object=server.object or "",
        directory=str(file.resolve().parent),
    )
    return server, source, where


def _endpoint(name: str, servers: dict[str, Any], shared: Options, file: Path) -> Endpoint:
    server, source, where = _read_table(name, servers, file)
    given = _options(server)
    if server.servers is not None:
        source = replace(source, name=name, parts=_parts(server, servers, file, where))
        _refuse_of_parts(given, source, where)
    elif server.prefixes is not None:
        raise ConfigError(
            f"{where} prefixes: they are for a server that is made of others, with the key servers"
        )
    # A server that is made of others is an object of Python, but all its components may need scopes.
    check_fit(replace(given, oidc_scopes=None) if source.parts else given, source.kind, where)
    own = Options(path=path_of(name, server.path, where), namespace=namespace_of(name))
    options = laid_over(laid_over(shared, own), _beside(given, Path(source.directory)))
    return Endpoint(name=name, where=where, source=source, options=options)


def _options(server: ServerTable) -> Options:
    return Options(**{member: getattr(server, member) for member in Options.__struct_fields__})


def _parts(whole: ServerTable, servers: dict[str, Any], file: Path, where: str) -> tuple[FilePart, ...]:
    """Return the servers that another one is made of."""
    names, prefixes = whole.servers or (), whole.prefixes or {}
    for name in (*names, *prefixes):
        if name not in servers:
            raise ConfigError(
                f"{where} {name[:64]}: the file has no such server; it has {', '.join(servers)}"
            )
        if name in prefixes and name not in names:
            raise ConfigError(f"{where} prefixes.{name}: this server is not in servers")
        if names.count(name) > 1:
            raise ConfigError(f"{where} servers: {name} is in it twice")
    return tuple(_part(name, prefixes.get(name, name), servers, file) for name in names)


def _part(name: str, prefix: str, servers: dict[str, Any], file: Path) -> FilePart:
    server, source, where = _read_table(name, servers, file)
    if server.servers is not None:
        raise ConfigError(
            f"{where} it is made of other servers and cannot be a part: name these servers instead"
        )
    given = _options(server)
    check_fit(given, source.kind, where)
    if server.path is None:
        for member in Options.__struct_fields__:
            if member not in OF_PARTS and getattr(given, member) is not None:
                raise ConfigError(
                    f"{where} {member}: this server is a part of another one, which has the address: write it there. Or give "
                    "this one its own address, with path"
                )
    kept = {member: getattr(given, member) for member in OF_PARTS}
    options = _beside(Options(**kept), Path(source.directory))
    return FilePart(name=name, prefix=prefix, source=source, options=options, where=where)


def _refuse_of_parts(given: Options, source: ServerSource, where: str) -> None:
    """Refuse an option of a server behind in the table of one that is made of others."""
    of_both = {*ShownComponentOptions.__struct_fields__, "oidc_scopes"}
    for member in OF_PARTS:
        if member not in of_both and getattr(given, member) is not None:
            names = ", ".join(part.name for part in source.parts)
            raise ConfigError(
                f"{where} {member}: write it into the table of the server that it is for: {names}"
            )


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
