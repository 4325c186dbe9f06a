"""Resources without a function of the author: a text, a file, a directory."""

import json
from pathlib import Path
from typing import Any

import pytest

from limpet import Server
from limpet.errors import ConfigError
from limpet.resources import Directory, File, Text
from tests.support import async_test
from tests.unit.server.peer import Peer, connected


async def read(peer: Peer, uri: str) -> dict[str, Any]:
    found = await peer.request("resources/read", {"uri": uri})
    contents: dict[str, Any] = found["contents"][0]
    return contents


@async_test
async def test_a_text_and_a_file_are_listed_and_read(tmp_path: Path) -> None:
    guide = tmp_path / "guide.txt"
    guide.write_text("# One")
    picture = tmp_path / "dot.png"
    picture.write_bytes(b"\x89PNG")
    server = Server("s")
    server.add_resource("note://rules", Text("Be brief."))
    server.add_resource("docs://guide", File(guide), description="The guide")
    server.add_resource("docs://dot", File(picture), name="dot")
    async with connected(server) as peer:
        listed = (await peer.request("resources/list"))["resources"]
        assert listed == [
            {"uri": "note://rules", "name": "text", "mimeType": "text/plain"},
            {
                "uri": "docs://guide",
                "name": "guide.txt",
                "mimeType": "text/plain",
                "description": "The guide",
            },
            {"uri": "docs://dot", "name": "dot", "mimeType": "image/png"},
        ]
        assert (await read(peer, "note://rules"))["text"] == "Be brief."
        guide.write_text("# Two")
        found = await read(peer, "docs://guide")
        assert (found["text"], found["mimeType"]) == ("# Two", "text/plain")
        assert (await read(peer, "docs://dot"))["blob"] == "iVBORw=="


@async_test
async def test_a_directory_lists_its_files_and_serves_each(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    (root / "deep").mkdir(parents=True)
    (root / "a.txt").write_text("A")
    (root / "deep" / "b.txt").write_text("BB")
    (root / "other.csv").write_text("not matched")
    (root / ".hidden.txt").write_text("hidden")
    (tmp_path / "secret.txt").write_text("outside")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    docs = Directory(root, pattern="*.txt")
    server = Server("s")
    server.add_resource("docs://list", docs)
    server.add_resource("docs://files/{+path}", docs.read)
    async with connected(server) as peer:
        found = await read(peer, "docs://list")
        assert found["mimeType"] == "application/json"
        assert json.loads(found["text"]) == [
            {"path": "a.txt", "size": 1},
            {"path": "deep/b.txt", "size": 2},
        ]
        assert (await read(peer, "docs://files/deep/b.txt"))["text"] == "BB"
        for path in (
            "none.txt",
            "other.csv",
            ".hidden.txt",
            "link.txt",
            "../secret.txt",
            "deep/../../secret.txt",
            "%2e%2e/secret.txt",
            str(tmp_path / "secret.txt"),
            "deep",
            "a.txt%00",
        ):
            answer = await peer.message("resources/read", {"uri": f"docs://files/{path}"})
            assert answer["error"]["code"] == -32002, path
            assert "outside" not in json.dumps(answer)


@async_test
async def test_a_file_over_the_limit_is_refused_with_the_limit(tmp_path: Path) -> None:
    large = tmp_path / "large.txt"
    large.write_text("x" * 11)
    server = Server("s")
    server.add_resource("docs://large", File(large, max_bytes=10))
    async with connected(server) as peer:
        answer = await peer.message("resources/read", {"uri": "docs://large"})
        assert "larger than the limit of 10 bytes" in answer["error"]["message"]
        large.write_text("x" * 10)
        assert (await read(peer, "docs://large"))["text"] == "x" * 10


def test_a_path_that_does_not_exist_is_refused_at_registration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        File(tmp_path)
    with pytest.raises(ConfigError, match="no such directory"):
        Directory(tmp_path / "none")
