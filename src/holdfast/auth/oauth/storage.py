"""Where tokens and registrations are kept, by server URL and issuer. A file is its owner's alone, whole or absent."""

import asyncio
import hashlib
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from holdfast.auth.oauth.identity import ClientIdentity
from holdfast.auth.oauth.tokens import Tokens
from holdfast.errors import ConfigError

OWNER_ONLY: Final = 0o700


class Kept(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is remembered of one authorization server for one MCP server."""

    issuer: str
    resource: str
    scopes: tuple[str, ...] = ()
    """All that were asked for so far."""
    tokens: Tokens | None = None
    client: ClientIdentity | None = None
    """A dynamic registration; others are configured."""
    key: str = ""
    """The key that the tokens are bound to, in PEM."""

    def __repr__(self) -> str:
        return f"<Kept of {self.issuer}, {self.tokens}>"


class TokenStorage(Protocol):
    """Keeps credentials. Called seldom: when a client begins, and when tokens change."""

    async def load(self, server: str, issuer: str | None = None) -> Kept | None:
        """Return what is kept for a server and an issuer; for the issuer saved last if none is named."""
        ...

    async def save(self, server: str, kept: Kept) -> None:
        """Keep it, in place of what was kept for the same server and issuer."""
        ...


class _Shelf(Struct, frozen=True):
    """Everything kept for one server."""

    server: str
    last: str
    issuers: dict[str, Kept]

    def find(self, issuer: str | None) -> Kept | None:
        return self.issuers.get(self.last if issuer is None else issuer)

    def with_one(self, kept: Kept) -> "_Shelf":
        return _Shelf(self.server, kept.issuer, {**self.issuers, kept.issuer: kept})


class MemoryStorage:
    """Keeps credentials as long as the process lives."""

    def __init__(self) -> None:
        self._shelves: dict[str, _Shelf] = {}

    def __repr__(self) -> str:
        return f"<MemoryStorage of {len(self._shelves)} servers>"

    async def load(self, server: str, issuer: str | None = None) -> Kept | None:
        """Return what is kept."""
        shelf = self._shelves.get(server)
        return shelf.find(issuer) if shelf else None

    async def save(self, server: str, kept: Kept) -> None:
        """Keep it."""
        shelf = self._shelves.get(server) or _Shelf(server, kept.issuer, {})
        self._shelves[server] = shelf.with_one(kept)


class FileStorage:
    """Keeps credentials in a directory, a file for each server: mode 0600, replaced in one step."""

    def __init__(self, directory: str | Path | None = None) -> None:
        """Say where; left out, in the user's own state directory."""
        self._directory = Path(directory) if directory is not None else default_directory()
        self._writing = threading.Lock()

    def __repr__(self) -> str:
        return f"<FileStorage {self._directory}>"

    async def load(self, server: str, issuer: str | None = None) -> Kept | None:
        """Return what is kept; a file that is damaged counts as none.

        Raises:
            ConfigError: it may not be read.
        """
        shelf = await asyncio.to_thread(self._read, server)
        return shelf.find(issuer) if shelf else None

    async def save(self, server: str, kept: Kept) -> None:
        """Keep it.

        Raises:
            ConfigError: nothing can be written there.
        """
        await asyncio.to_thread(self._write, server, kept)

    def _path(self, server: str) -> Path:
        return self._directory / f"{hashlib.sha256(server.encode()).hexdigest()}.json"

    def _read(self, server: str) -> _Shelf | None:
        try:
            return msgspec.json.decode(self._path(server).read_bytes(), type=_Shelf)
        except (FileNotFoundError, msgspec.DecodeError, ConfigError):
            return None
        except OSError as error:
            raise ConfigError(f"cannot read credentials in {self._directory}: {error.strerror}") from None

    def _write(self, server: str, kept: Kept) -> None:
        with self._writing:
            shelf = (self._read(server) or _Shelf(server, kept.issuer, {})).with_one(kept)
            self._replace(shelf)

    def _replace(self, shelf: _Shelf) -> None:
        try:
            self._directory.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
            # Made with mode 0600, under a name that nobody else can have taken.
            handle, name = tempfile.mkstemp(dir=self._directory, suffix=".new")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.encode(shelf))
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self._path(shelf.server))
            except BaseException:
                with suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise ConfigError(f"cannot keep credentials in {self._directory}: {error.strerror}") from None


def default_directory() -> Path:
    """Return the user's state directory for this package."""
    home = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    return Path(home or Path.home() / ".local" / "state") / "holdfast" / "credentials"
