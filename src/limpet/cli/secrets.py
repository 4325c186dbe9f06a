"""Secrets of the command line: in a file or a variable, never in an argument, which other users can read."""

import os
from pathlib import Path
from typing import Final

from limpet.auth.forward_key import ForwardKey
from limpet.errors import ConfigError

TOKEN_VARIABLE: Final = "LIMPET_UPSTREAM_TOKEN"  # noqa: S105 - a name
KEY_VARIABLE: Final = "LIMPET_FORWARD_KEY"
ADMIN_VARIABLE: Final = "LIMPET_ADMIN_TOKEN"


def upstream_token(file: str | None, variable: str | None) -> str | None:
    """Return our bearer token for the server behind; None if no token was configured.

    Raises:
        ConfigError: the file cannot be read or is empty, or the variable is not set.
    """
    if file is None and variable is None:
        return None
    token = secret(file, "--token-file", variable or "")
    if token is None:
        raise ConfigError(f"--token-env {variable}: this variable is not set, or is empty")
    return token


def forward_key(file: str | None) -> ForwardKey | None:
    """Return the key for credentials that go from one process to another; None if no key was configured.

    Raises:
        ConfigError: the file cannot be read, or there is no key in it or in the variable.
    """
    text = secret(file, "--forward-key-file", KEY_VARIABLE)
    if text is None:
        return None
    return ForwardKey(text, KEY_VARIABLE if file is None else f"--forward-key-file {file}")


def admin_token(file: str | None) -> str:
    """Return the token of the admin surface; empty if none was configured.

    Raises:
        ConfigError: the file cannot be read or is empty.
    """
    return secret(file, "--admin-token-file", ADMIN_VARIABLE) or ""


def operator_token(file: str | None) -> str:
    """Return the token of the admin surface that a command asks.

    Raises:
        ConfigError: the file cannot be read or is empty, or there is no token at all.
    """
    token = admin_token(file)
    if not token:
        raise ConfigError(
            f"the admin surface needs its token: give --admin-token-file FILE, or set {ADMIN_VARIABLE}"
        )
    return token


def secret(file: str | None, option: str, variable: str) -> str | None:
    """Return the secret in the file of an option, else that of the variable; None if there is none.

    Raises:
        ConfigError: the file cannot be read or is empty.
    """
    if file is None:
        return os.environ.get(variable) or None
    try:
        text = Path(file).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option} {file} cannot be read: {error}") from None
    if not text:
        raise ConfigError(f"{option} {file} is empty")
    return text
