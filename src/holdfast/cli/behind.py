"""A target that is another server: a URL, or the command after `--`. Its options, and what does not fit together."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.server.served import Served

TOKEN_VARIABLE: Final = "HOLDFAST_UPSTREAM_TOKEN"  # noqa: S105 - a name
_SCHEMES: Final = ("http://", "https://")
_FOR_URL: Final = ("--header", "--token-file")
_FOR_COMMAND: Final = ("--env", "--children")


class Behind(Struct, frozen=True, kw_only=True):
    """The server behind, as the command line describes it."""

    url: str = ""
    command: tuple[str, ...] = ()
    concurrency: int | None = None
    strict: bool = False
    headers: tuple[str, ...] = ()
    token_file: str | None = None
    env: tuple[str, ...] = ()
    children: int | None = None
    version: str | None = None

    def server(self) -> "Served":
        """Return the server to serve. Nothing is connected or started.

        Raises:
            ConfigError: a value is invalid.
        """
        from holdfast.server.proxies import CHILDREN, Process, Remote  # noqa: PLC0415 - `--help` does not need it

        if self.url:
            return Remote(
                self.url,
                headers=_pairs(self.headers, "--header"),
                token=_token(self.token_file),
                concurrency=self.concurrency,
                strict=self.strict,
                protocol_version=self.version or "auto",
            )
        return Process(
            self.command,
            env=_pairs(self.env, "--env"),
            children=CHILDREN if self.children is None else self.children,
            concurrency=self.concurrency,
            strict=self.strict,
            protocol_version=self.version or "auto",
        )


def behind(target: str | None, command: tuple[str, ...], options: Behind, workers: int) -> Behind | None:
    """Return the server behind; None if the target is a server object.

    Raises:
        ConfigError: the target and the options do not fit together.
    """
    given = {
        "--concurrency": options.concurrency is not None,
        "--strict": options.strict,
        "--header": bool(options.headers),
        "--token-file": options.token_file is not None,
        "--env": bool(options.env),
        "--children": options.children is not None,
        "--upstream-version": options.version is not None,
    }
    is_url = target is not None and target.lower().startswith(_SCHEMES)
    if target is None and not command:
        raise ConfigError(
            "serve needs a target: file.py:object, package.module:object, a URL, or a command after --"
        )
    if target is not None and command:
        raise ConfigError(f"serve takes one target: {target}, or the command after --, not both")
    wrong = _FOR_COMMAND if is_url else _FOR_URL if command else tuple(given)
    kind = "a URL" if is_url else "a command" if command else "a server object of Python"
    for name in wrong:
        if given[name]:
            raise ConfigError(f"{name} does not fit {kind}: it is for {_meant(name)}")
    if not is_url and not command:
        return None
    if workers > 1:
        raise ConfigError(
            "--workers does not fit a URL or a command: the sessions of a server in front of another one live in one "
            "process for now"
        )
    return replace(options, url=target if is_url and target is not None else "", command=command)


def _meant(name: str) -> str:
    if name in _FOR_URL:
        return "a URL"
    return "a command after --" if name in _FOR_COMMAND else "a URL, or a command after --"


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            # The value may be a secret: it is not repeated.
            raise ConfigError(f"{option} takes NAME=VALUE, not {name[:64]!r}")
        pairs[name.strip()] = value
    return pairs


def _token(file: str | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file} cannot be read: {error}") from None
    if not token:
        raise ConfigError(f"--token-file {file} is empty")
    return token
