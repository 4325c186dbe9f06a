"""The source of a server: a server object of Python, the server behind a URL, or a program.

And which options fit it.
"""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from limpet.cli.options import Options
from limpet.cli.rows import COMMAND, FILE, OBJECT, URL, Kind, entries
from limpet.errors import ConfigError

if TYPE_CHECKING:
    from limpet.server.served import Served

_SCHEMES: Final = ("http://", "https://")
_WORDS: Final = {COMMAND: "a command after --"}


class FilePart(Struct, frozen=True, kw_only=True):
    """A server that is a part of another one of the file."""

    name: str
    prefix: str
    """The prefix of the names of its components; empty: none."""
    source: "ServerSource"
    options: Options
    """Those that say how it is reached."""
    where: str
    """The file and the table, for errors."""


class ServerSource(Struct, frozen=True, kw_only=True):
    """The source of a server. One of the members is set."""

    object: str = ""
    """A server object: file.py:object or package.module:object."""
    url: str = ""
    command: tuple[str, ...] = ()
    parts: tuple[FilePart, ...] = ()
    """The servers that it is made of."""
    name: str = ""
    """The name of a server that is made of others."""
    directory: str = ""
    """Where relative paths begin and a command runs: the directory of a file. Empty: the working directory."""

    @property
    def kind(self) -> Kind:
        """Its kind, as text. A server that is made of others is an object of Python."""
        return URL if self.url else COMMAND if self.command else OBJECT

    def server(self, options: Options) -> "Served":
        """Return the server to serve. Nothing is connected or started.

        Raises:
            ConfigError: there is no such server, or an option is invalid.
        """
        if not self.url and not self.command:
            from limpet.cli.target import load  # noqa: PLC0415 - imported only by this command

            return load(self.object, self.directory)
        from limpet.cli.proxied import process, remote  # noqa: PLC0415 - imported only by this command

        return remote(self.url, options) if self.url else process(self.command, options, self.directory)


def source(target: str | None, command: tuple[str, ...]) -> ServerSource:
    """Return the source that the command line names.

    Raises:
        ConfigError: it names nothing, or two things.
    """
    if target is not None and command:
        raise ConfigError(f"serve takes one target: {target}, or the command after --, not both")
    if command:
        return ServerSource(command=command)
    if target is None:
        raise ConfigError(
            "the target is missing: file.py:object, package.module:object, a URL, limpet.toml, mcp.json, or a command "
            "after --"
        )
    if "://" in target and not target.lower().startswith(_SCHEMES):
        raise ConfigError(
            f"the URL of a server begins with http:// or https://, not {target.partition('://')[0]}://"
        )
    return ServerSource(url=target) if target.lower().startswith(_SCHEMES) else ServerSource(object=target)


def check_fit(options: Options, kind: Kind, where: str = "") -> None:
    """Refuse an option that has no meaning for this kind of target. `where` names the table of a file that has it.

    Raises:
        ConfigError: an option does not fit.
    """
    for entry in entries(Options):
        if kind not in entry.row.fits and entry.of(options) is not None:
            meant = ", or ".join(
                one if where else _WORDS.get(one, one) for one in entry.row.fits if one != FILE
            )
            named = f"{where} {entry.key}" if where else entry.flag
            hint = "; write it into the table of a server" if kind == FILE else ""
            raise ConfigError(f"{named} does not fit {kind}: it is for {meant}{hint}")
