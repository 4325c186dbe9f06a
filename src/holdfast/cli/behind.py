"""What is served: a server object of Python, the server behind a URL, or a program. And which options fit it."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from holdfast.cli.options import COMMAND, OBJECT, URL, Kind, Options, entries
from holdfast.cli.secrets import upstream_token
from holdfast.cli.target import load
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.server.served import Served

_SCHEMES: Final = ("http://", "https://")


class Source(Struct, frozen=True, kw_only=True):
    """What is served. One of the members is set."""

    object: str = ""
    """A server object: file.py:object or package.module:object."""
    url: str = ""
    command: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """What it is, in words."""
        return URL if self.url else COMMAND if self.command else OBJECT

    def server(self, options: Options) -> "Served":
        """Return the server to serve. Nothing is connected or started.

        Raises:
            ConfigError: there is no such server, or an option is invalid.
        """
        if self.url:
            return _remote(self.url, options)
        return _process(self.command, options) if self.command else load(self.object)


def source(target: str | None, command: tuple[str, ...]) -> Source:
    """Return what the command line names.

    Raises:
        ConfigError: it names nothing, or two things.
    """
    if target is not None and command:
        raise ConfigError(f"serve takes one target: {target}, or the command after --, not both")
    if command:
        return Source(command=command)
    if target is None:
        raise ConfigError(
            "serve needs a target: file.py:object, package.module:object, a URL, or a command after --"
        )
    return Source(url=target) if target.lower().startswith(_SCHEMES) else Source(object=target)


def check_fit(options: Options, kind: Kind) -> None:
    """Refuse an option that has no meaning for this kind of target.

    Raises:
        ConfigError: an option does not fit.
    """
    for entry in entries(Options):
        if kind not in entry.row.fits and entry.of(options) is not None:
            meant = ", or ".join("a command after --" if one is COMMAND else one for one in entry.row.fits)
            raise ConfigError(f"{entry.flag} does not fit {kind}: it is for {meant}")


def _remote(url: str, options: Options) -> "Served":
    from holdfast.server.proxies import Remote  # noqa: PLC0415 - `--help` does not need it

    return Remote(
        url,
        headers=options.headers,
        token=upstream_token(options.token_file),
        pass_token=options.pass_token or False,
        pass_headers=options.pass_headers or (),
        concurrency=options.concurrency,
        strict=options.strict or False,
        protocol_version=options.upstream_version or "auto",
    )


def _process(command: tuple[str, ...], options: Options) -> "Served":
    from holdfast.server.proxies import CHILDREN, Process  # noqa: PLC0415 - `--help` does not need it

    return Process(
        command,
        env=options.env,
        children=options.children or CHILDREN,
        concurrency=options.concurrency,
        strict=options.strict or False,
        protocol_version=options.upstream_version or "auto",
    )
