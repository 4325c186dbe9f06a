"""The variables of a child: fixed ones, and ones whose value comes from the client, by a header or a claim.

A value from a client is data that an attacker may choose. So such a variable may not change which code the child runs
or with which hosts it communicates: the dynamic loader, interpreters, shells, package managers, git, trusted
certificates and proxies all read variables. The list below refuses families of them, by prefix, because each family
grows with its program. It is an aid, not a proof: name variables that only your server reads, such as `API_KEY`.

A value is text of at most VALUE_BYTES without NUL. The values of a session are those of the request that opened it.
Clients of 2026-07-28 have no session: the values are part of the key of their child, so two values never meet in one
child.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.config import KIB
from limpet.engine.caller import Caller
from limpet.errors import INVALID_REQUEST, ConfigError, McpError
from limpet.transports.child import INHERITED

VALUE_BYTES: Final = 8 * KIB
"""The longest value that comes from a client."""
OURS: Final = "LIMPET_"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
REFUSED_PREFIXES: Final = (
    "LD_", "DYLD_", "GLIBC_", "MALLOC_", "LIBPATH", "SHLIB_",
    "BASH_", "ZDOT", "PYTHON", "PIP_", "UV_", "CONDA_", "VIRTUAL_ENV", "NODE_", "NPM_CONFIG_", "DENO_", "BUN_", "YARN_",
    "PERL", "RUBY", "GEM_", "BUNDLE_", "JAVA_", "_JAVA_", "JDK_", "MAVEN_", "GRADLE_", "DOTNET_", "CORECLR_", "COMPLUS_",
    "PHP", "LUA_", "ERL_", "CARGO_", "RUST_", "GIT_", "SSH_", "DOCKER_", "OPENSSL_", "SSL_CERT_", "XDG_", "LC_",
)  # fmt: skip
"""Families of variables that loaders, interpreters and tools read."""
REFUSED: Final = frozenset({
    *INHERITED, "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CLASSPATH", "GODEBUG", "GOFLAGS", "R_PROFILE",
    "GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "RESOLV_HOST_CONF", "TERMINFO", "TERMCAP", "LOCALDOMAIN",
    "EDITOR", "VISUAL", "PAGER", "BROWSER", "COMSPEC", "WINDIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "CURL_HOME", "WGETRC", "OLDPWD", "PWD", "CDPATH", "TZDIR",
})  # fmt: skip
"""Single variables of the same kind, and those that a child inherits from us."""


class FromHeader(Struct, frozen=True):
    """The value of a header of the request that opens the session."""

    name: str


class FromClaim(Struct, frozen=True):
    """A claim of the client's principal. A claim that is not text is given as JSON."""

    name: str


Value = str | FromHeader | FromClaim
"""The value of a variable."""


def variables(texts: Mapping[str, str]) -> dict[str, Value]:
    """Return the variables of a command line: `header:NAME` and `claim:NAME` are values that come from the client."""
    made: dict[str, Value] = {}
    for name, text in texts.items():
        kind, separator, source = text.partition(":")
        if separator and kind == "header":
            made[name] = FromHeader(source)
        else:
            made[name] = FromClaim(source) if separator and kind == "claim" else text
    return made


class Environment:
    """The variables of the children of one command."""

    def __init__(self, variables: Mapping[str, Value]) -> None:
        """Check the names.

        Raises:
            ConfigError: a name or a value is invalid, or may not come from a client.
        """
        for name, value in variables.items():
            _check(name, value)
        self._fixed = {name: value for name, value in variables.items() if isinstance(value, str)}
        self._sources = {name: value for name, value in variables.items() if not isinstance(value, str)}

    def __repr__(self) -> str:
        # Without values: they may be secrets.
        return f"<Environment {', '.join((*self._fixed, *self._sources))}>"

    @property
    def needs_client(self) -> bool:
        """True if a value comes from the client."""
        return bool(self._sources)

    def of(self, caller: Caller) -> dict[str, str]:
        """Return the variables of a child for this caller.

        Raises:
            McpError: the caller did not send a value, or the value is not allowed.
        """
        return self._fixed | self._given(caller)

    def key(self, caller: Caller) -> bytes:
        """Return a hash of the values that come from the caller; no bytes if no value comes from the caller.

        Raises:
            McpError: as `of`.
        """
        if not self._sources:
            return b""
        values = msgspec.json.encode(self._given(caller), order="deterministic")
        return hashlib.sha256(values).digest()

    def _given(self, caller: Caller) -> dict[str, str]:
        given: dict[str, str] = {}
        for name, source in self._sources.items():
            value = _found(source, caller)
            if "\0" in value or len(value.encode("utf-8", "surrogateescape")) > VALUE_BYTES:
                raise McpError(
                    INVALID_REQUEST,
                    f"{_words(source)} is over {VALUE_BYTES} bytes or has a NUL character",
                )
            given[name] = value
        return given


def _found(source: FromHeader | FromClaim, caller: Caller) -> str:
    found: Any = None
    if isinstance(source, FromHeader):
        found = caller.headers.get(source.name.lower())
    elif (principal := caller.principal) is not None:
        found = principal.claims.get(source.name)
        if found is None:
            known = {"sub": principal.subject, "iss": principal.issuer, "client_id": principal.client}
            found = known.get(source.name) or None
    if found is None:
        raise McpError(
            INVALID_REQUEST, f"this server needs {_words(source)}, and the request does not have it"
        )
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _words(source: FromHeader | FromClaim) -> str:
    return f"the {'header' if isinstance(source, FromHeader) else 'claim'} {source.name}"


def _check(name: str, value: Value) -> None:
    upper = name.upper()
    if upper.startswith(OURS):
        raise ConfigError(f"{name} is a variable of Limpet itself and is never given to a child")
    if isinstance(value, str):
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"a variable is NAME=VALUE without NUL characters, not {name[:64]!r}")
        return
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"a variable from a client has letters, digits and _ in its name, not {name[:64]!r}"
        )
    if upper in REFUSED or upper.startswith(REFUSED_PREFIXES):
        raise ConfigError(
            f"{name} cannot come from a client: it can change which program runs or with which hosts it communicates. "
            "Use a variable that only your server reads"
        )
    if not value.name or (isinstance(value, FromHeader) and not _HEADER.fullmatch(value.name)):
        raise ConfigError(f"{name} needs the name of a header or a claim, not {value.name[:64]!r}")
