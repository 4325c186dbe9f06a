"""The server behind a URL, or a program, with the options of the command line."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.oauth import OAuth
from limpet.auth.oauth.users import UserOAuth, machine_oauth
from limpet.backs.environment import variables
from limpet.cli.options import Options
from limpet.cli.secrets import secret, upstream_token
from limpet.cli.sizes import size_of
from limpet.errors import ConfigError
from limpet.server.process import CHILDREN, START_SECONDS, Process
from limpet.server.remote import Remote
from limpet.server.served import Served
from limpet.transports.child import ChildLimits
from limpet.upstream.settings import ClientTimes

_NEEDS: Final = {
    "oauth_client_id": ("oauth", "oauth_callback"),
    "oauth_secret_file": ("oauth_client_id",),
    "oauth_issuer": ("oauth_client_id",),
    "oauth_redirect": ("oauth",),
}
"""Options that mean nothing without one of others."""


def remote(url: str, options: Options) -> Served:
    """Return the server behind a URL. Nothing is connected.

    Raises:
        ConfigError: an option is invalid.
    """
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


def authorizer(options: Options) -> str | OAuth | None:
    """Return the credentials of a client of a URL: our token, or the sign-in of the user of this machine.

    Raises:
        ConfigError: an option is invalid.
    """
    token, oauth = upstream_token(options.token_file, options.token_env), _oauth(options)
    if token is not None and oauth:
        raise ConfigError("--oauth signs in, and there is a token too: use one of them")
    return oauth if isinstance(oauth, OAuth) else token


def _oauth(options: Options) -> bool | OAuth | UserOAuth:
    for name, others in _NEEDS.items():
        if getattr(options, name) is not None and not any(getattr(options, other) for other in others):
            raise ConfigError(f"{_flag(name)} needs {' or '.join(map(_flag, others))}")
    if options.oauth and options.oauth_callback is not None:
        raise ConfigError("--oauth signs in one user, and --oauth-callback each user: use one of them")
    if options.oauth_callback is not None:
        return UserOAuth(options.oauth_callback, client=_client(options))
    return machine_oauth(_client(options), options.oauth_redirect or "") if options.oauth else False


def _client(options: Options) -> ClientIdentity | None:
    """Return Limpet as it is registered at the authorization server; None if it registers itself."""
    if options.oauth_client_id is None:
        return None
    shared = secret(options.oauth_secret_file, "--oauth-secret-file", "LIMPET_OAUTH_SECRET")
    if shared is not None and options.oauth_issuer is None:
        raise ConfigError("a client secret needs --oauth-issuer: no other authorization server receives it")
    return ClientIdentity(options.oauth_client_id, secret=shared or "", issuer=options.oauth_issuer or "")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def process(command: tuple[str, ...], options: Options, directory: str) -> Served:
    """Return the program as a server. Nothing is started.

    Raises:
        ConfigError: there is no such program, or an option is invalid.
    """
    env, cwd = variables(options.env or {}), options.cwd or directory
    if not directory:
        # From a file there may be several servers: the error is for the clients of this one.
        _check_program(command[0], env, cwd)
    return Process(
        command,
        env=env,
        cwd=cwd or None,
        times=ClientTimes(connect=options.start_timeout or START_SECONDS),
        children=options.children or CHILDREN,
        child_limits=_child_limits(options),
        child_idle=options.child_idle,
        shared=options.shared or False,
        shared_between=options.shared_between or (),
        concurrency=options.concurrency,
        strict=options.strict or False,
        protocol_version=options.upstream_version or "auto",
    )


def _child_limits(options: Options) -> ChildLimits | None:
    memory = None if options.child_memory is None else size_of(options.child_memory)
    limits = ChildLimits(memory=memory, cpu=options.child_cpu, files=options.child_files)
    return None if limits == ChildLimits() else limits


def _check_program(program: str, env: Mapping[str, object], cwd: str) -> None:
    """Refuse a program that does not exist; without this, the first client would notice it."""
    if cwd and not Path(cwd).is_dir():
        raise ConfigError(f"cannot start {program}: there is no directory {cwd}")
    is_name = Path(program).name == program
    found = shutil.which(program if is_name else Path(cwd, program).absolute())
    if found is None and "PATH" not in env:
        raise ConfigError(f"cannot start {program}: there is no such program, or it is not executable")
