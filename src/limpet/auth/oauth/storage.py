"""Storage of tokens and registrations by server URL and issuer.

Only the owner can read a file; it is never incomplete.
"""

import asyncio
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.tokens import Tokens
from limpet.errors import ConfigError

OWNER_ONLY: Final = 0o700


class Credentials(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The credentials of one authorization server for one MCP server."""

    issuer: str
    resource: str
    scopes: tuple[str, ...] = ()
    """All scopes that were requested so far."""
    tokens: Tokens | None = None
    client: ClientIdentity | None = None
    """The dynamic registration; None if the client is configured."""
    key: str = ""
    """The key that the tokens are bound to, in PEM."""

    def __repr__(self) -> str:
        return f"<Credentials of {self.issuer}, {self.tokens}>"


class TokenStorage(Protocol):
    """Stores credentials. It is called when a client starts and when tokens change.

    `server` is the URL of the MCP server; for a client that was registered by hand, followed by `#` and the client's
    id.
    """

    async def load(self, server: str, issuer: str | None = None) -> Credentials | None:
        """Return the credentials for a server and an issuer; without an issuer, those that were saved last."""

    async def save(self, server: str, kept: Credentials) -> None:
        """Store credentials; they replace those of the same server and issuer."""


def turn_of(storage: TokenStorage) -> AbstractAsyncContextManager[None]:
    """Return a context in which no other process renews tokens, if the storage has one.

    A refresh token may be used once only.
    """
    turn: Callable[[], AbstractAsyncContextManager[None]] | None = getattr(storage, "turn", None)
    return nullcontext() if turn is None else turn()


class ServerCredentials(Struct, frozen=True):
    """All credentials for one server."""

    server: str
    last: str
    issuers: dict[str, Credentials]

    def find(self, issuer: str | None) -> Credentials | None:
        return self.issuers.get(self.last if issuer is None else issuer)

    def with_one(self, kept: Credentials) -> "ServerCredentials":
        return ServerCredentials(self.server, kept.issuer, {**self.issuers, kept.issuer: kept})


class MemoryStorage:
    """Stores credentials in memory."""

    def __init__(self) -> None:
        self._by_server: dict[str, ServerCredentials] = {}

    def __repr__(self) -> str:
        return f"<MemoryStorage of {len(self._by_server)} servers>"

    async def load(self, server: str, issuer: str | None = None) -> Credentials | None:
        credentials = self._by_server.get(server)
        return credentials.find(issuer) if credentials else None

    async def save(self, server: str, kept: Credentials) -> None:
        credentials = self._by_server.get(server) or ServerCredentials(server, kept.issuer, {})
        self._by_server[server] = credentials.with_one(kept)


class FileStorage:
    """Stores credentials in a directory, one file for each server: mode 0600, replaced atomically."""

    def __init__(self, directory: str | Path | None = None) -> None:
        """Choose the directory; by default one in the user's state directory."""
        self._directory = Path(directory) if directory is not None else default_directory()
        self._writing = threading.Lock()

    def __repr__(self) -> str:
        return f"<FileStorage {self._directory}>"

    async def load(self, server: str, issuer: str | None = None) -> Credentials | None:
        """Return the credentials; a damaged file counts as missing.

        Raises:
            ConfigError: the file cannot be read.
        """
        credentials = await asyncio.to_thread(self._read, server)
        return credentials.find(issuer) if credentials else None

    async def save(self, server: str, kept: Credentials) -> None:
        """Store credentials; see `TokenStorage`.

        Raises:
            ConfigError: the file cannot be written.
        """
        await asyncio.to_thread(self._write, server, kept)

    def _path(self, server: str) -> Path:
        return self._directory / f"{hashlib.sha256(server.encode()).hexdigest()}.json"

    def _read(self, server: str) -> ServerCredentials | None:
        try:
            return msgspec.json.decode(self._path(server).read_bytes(), type=ServerCredentials)
        except (FileNotFoundError, msgspec.DecodeError, ConfigError):
            return None
        except OSError as error:
            raise ConfigError(f"cannot read credentials in {self._directory}: {error.strerror}") from None

    def _write(self, server: str, kept: Credentials) -> None:
        with self._writing:
            credentials = (self._read(server) or ServerCredentials(server, kept.issuer, {})).with_one(kept)
            self._replace(credentials)

    def _replace(self, credentials: ServerCredentials) -> None:
        try:
            self._directory.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
            # The file is created with mode 0600 and a name that no other process uses.
            handle, name = tempfile.mkstemp(dir=self._directory, suffix=".new")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.encode(credentials))
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self._path(credentials.server))
            except BaseException:
                with suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise ConfigError(f"cannot store credentials in {self._directory}: {error.strerror}") from None


def default_directory() -> Path:
    """Return the user's state directory for this package."""
    home = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    return Path(home or Path.home() / ".local" / "state") / "limpet" / "credentials"
