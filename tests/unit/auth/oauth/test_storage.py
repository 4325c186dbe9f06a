"""Credentials in files: their owner's alone, whole or absent, apart by server and issuer."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from limpet.auth.oauth import Credentials, FileStorage, MemoryStorage, Tokens, TokenStorage
from limpet.errors import ConfigError
from tests.support import async_test

SERVER = "https://mcp.example.com/mcp"


def kept(issuer: str, access: str = "a") -> Credentials:
    return Credentials(
        issuer=issuer, resource=SERVER, scopes=("x",), tokens=Tokens(access=access, refresh="r")
    )


@pytest.mark.parametrize("kind", [MemoryStorage, FileStorage])
@async_test
async def test_credentials_are_kept_apart_by_server_and_issuer(
    kind: type[MemoryStorage | FileStorage], tmp_path: Path
) -> None:
    storage: TokenStorage = FileStorage(tmp_path) if kind is FileStorage else MemoryStorage()
    assert await storage.load(SERVER) is None
    await storage.save(SERVER, kept("https://a"))
    await storage.save(SERVER, kept("https://b", "b"))
    await storage.save("https://other", kept("https://a", "other"))
    assert await storage.load(SERVER) == kept("https://b", "b")
    assert await storage.load(SERVER, "https://a") == kept("https://a")
    assert await storage.load(SERVER, "https://c") is None
    assert await storage.load("https://other") == kept("https://a", "other")


@async_test
async def test_a_file_is_readable_by_its_owner_only_and_no_other_file_is_left(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "credentials"
    storage = FileStorage(directory)
    await asyncio.gather(*(storage.save(SERVER, kept(f"https://{n}")) for n in range(20)))
    assert all([await storage.load(SERVER, f"https://{n}") for n in range(20)])
    (file,) = directory.iterdir()
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@async_test
async def test_a_damaged_file_counts_as_missing_and_is_replaced(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    await storage.save(SERVER, kept("https://a"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-10])
    assert await storage.load(SERVER) is None
    await storage.save(SERVER, kept("https://b"))
    assert await storage.load(SERVER) == kept("https://b")


@async_test
async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="Not a directory"):
        await FileStorage(tmp_path / "file").save(SERVER, kept("https://a"))
