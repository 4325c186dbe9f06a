"""What is served: a server object of Python, the server behind a URL, or a program. And which options fit it."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from holdfast.auth.oauth.identity import ClientIdentity
from holdfast.auth.oauth.oauth import OAuth
from holdfast.auth.oauth.users import UserOAuth, machine_oauth
from holdfast.cli.options import COMMAND, FILE, OBJECT, URL, Kind, Options, entries
from holdfast.cli.secrets import client_secret, upstream_token
from holdfast.cli.target import load
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.server.served import Served

_SCHEMES: Final = ("http://", "https://")
_WORDS: Final = {COMMAND: "a command after --"}
_NEEDS: Final = {
    "oauth_tokens": ("oauth_callback",),
    "oauth_client_id": ("oauth", "oauth_callback"),
    "oauth_secret_file": ("oauth_client_id",),
    "oauth_issuer": ("oauth_client_id",),
    "oauth_redirect": ("oauth",),
}
"""Options that mean nothing without one of others."""


class Source(Struct, frozen=True, kw_only=True):
    """What is served. One of the members is set."""

    object: str = ""
    """A server object: file.py:object or package.module:object."""
    url: str = ""
    command: tuple[str, ...] = ()
    directory: str = ""
    """Where relative paths begin and a command runs: the directory of a file. Empty: the working directory."""

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
        if self.command:
            return _process(self.command, options, self.directory)
        return load(self.object, self.directory)


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
            "serve needs a target: file.py:object, package.module:object, a URL, holdfast.toml, mcp.json, or a command "
            "after --"
        )
    if "://" in target and not target.lower().startswith(_SCHEMES):
        raise ConfigError(
            f"the URL of a server begins with http:// or https://, not {target.partition('://')[0]}://"
        )
    return Source(url=target) if target.lower().startswith(_SCHEMES) else Source(object=target)


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


def _remote(url: str, options: Options) -> "Served":
    from holdfast.server.proxies import Remote  # noqa: PLC0415 - `--help` does not need it

    return Remote(
        url,
        headers=options.headers,
        token=upstream_token(options.token_file, options.token_env),
        oauth=_oauth(options),
        pass_token=options.pass_token or False,
        pass_headers=options.pass_headers or (),
        concurrency=options.concurrency,
        strict=options.strict or False,
        protocol_version=options.upstream_version or "auto",
    )


def _oauth(options: Options) -> bool | OAuth | UserOAuth:
    for name, others in _NEEDS.items():
        if getattr(options, name) is not None and not any(getattr(options, other) for other in others):
            raise ConfigError(f"{_flag(name)} needs {' or '.join(map(_flag, others))}")
    if options.oauth and options.oauth_callback is not None:
        raise ConfigError("--oauth signs in one user, and --oauth-callback each user: use one of them")
    if options.oauth_callback is not None:
        return UserOAuth(options.oauth_callback, tokens=options.oauth_tokens, client=_client(options))
    return machine_oauth(_client(options), options.oauth_redirect or "") if options.oauth else False


def _client(options: Options) -> ClientIdentity | None:
    """Return Holdfast as it is registered at the authorization server; None if it registers itself."""
    if options.oauth_client_id is None:
        return None
    secret = client_secret(options.oauth_secret_file)
    if secret is not None and options.oauth_issuer is None:
        raise ConfigError("a client secret needs --oauth-issuer: no other authorization server receives it")
    return ClientIdentity(options.oauth_client_id, secret=secret or "", issuer=options.oauth_issuer or "")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _process(command: tuple[str, ...], options: Options, directory: str) -> "Served":
    from holdfast.server.proxies import CHILDREN, Process, variables  # noqa: PLC0415 - `--help` does not need it

    return Process(
        command,
        env=variables(options.env or {}),
        cwd=options.cwd or directory or None,
        children=options.children or CHILDREN,
        shared=options.shared or False,
        shared_between=options.shared_between or (),
        concurrency=options.concurrency,
        strict=options.strict or False,
        protocol_version=options.upstream_version or "auto",
    )
