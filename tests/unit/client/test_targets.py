"""Valid targets of a client, and the errors for other ones."""

import sys
from pathlib import Path
from typing import Any

import pytest

from limpet import Client, Server
from limpet.client.targets import find
from limpet.errors import ConfigError


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/mcp", "https://example.com/mcp", " HTTPS://Example.com "]
)
def test_a_url_of_http_is_connected_to(url: str) -> None:
    assert find(url).url == url.strip()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/mcp",
        "ws://example.com/mcp",
        "file:///bin/sh",
        "stdio://server",
        "http://",
        "https:///mcp",
        "http://example.com:99999/mcp",
        "http://[::1/mcp",
    ],
)
def test_any_other_url_is_refused_and_never_run_as_a_command(url: str) -> None:
    with pytest.raises(ConfigError, match="is not an http:// or https:// URL"):
        Client(url)


def test_a_command_is_words_or_one_line() -> None:
    assert find(["python", "server.py", "--stdio"]).command == ("python", "server.py", "--stdio")
    assert find("python 'my server.py' --stdio").command == ("python", "my server.py", "--stdio")
    assert find(("npx", "-y", "@scope/server")).command == ("npx", "-y", "@scope/server")


@pytest.mark.parametrize(
    ("name", "program"), [("server.py", sys.executable), ("server.js", "node"), ("my server.mjs", "node")]
)
def test_a_file_is_run_by_its_interpreter(name: str, program: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.touch()
    assert find(str(file)).command == (program, str(file))
    assert find(file).command == (program, str(file))
    assert find(name, tmp_path).command == (program, name)
    with pytest.raises(ConfigError, match="there is no file"):
        find(str(tmp_path / f"missing{file.suffix}"))


def test_a_program_with_a_space_in_its_path_is_one_word(tmp_path: Path) -> None:
    program = tmp_path / "my server"
    program.touch()
    assert find(str(program)).command == (str(program),)


def test_an_mcp_servers_dict_with_one_server_is_that_server() -> None:
    entry: dict[str, Any] = {
        "command": "npx",
        "args": ["-y", "server"],
        "env": {"KEY": "1"},
        "cwd": "/srv",
        "disabled": False,
    }
    found = find({"mcpServers": {"files": entry}})
    assert (found.command, found.env, found.cwd) == (("npx", "-y", "server"), {"KEY": "1"}, "/srv")
    remote = {"url": "https://example.com/mcp", "headers": {"x-key": "1"}, "type": "http"}
    found = find({"mcpServers": {"far": remote}})
    assert (found.url, found.headers) == ("https://example.com/mcp", {"x-key": "1"})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "mcpServers"),
        ({"mcpServers": []}, "mcpServers"),
        ({"mcpServers": {}}, "names no server"),
        ({"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}, r"names 2 \('a', 'b'\)"),
        ({"mcpServers": {"a": {}}}, '"url"'),
        ({"mcpServers": {"a": {"command": "x", "url": "https://example.com"}}}, '"url"'),
        ({"mcpServers": {"a": {"url": "wss://example.com", "type": "ws"}}}, '"url"'),
        ({"mcpServers": {"a": {"url": "ftp://example.com"}}}, "is not an http://"),
        ({"mcpServers": {"a": {"command": "x", "args": "-y"}}}, '"args"'),
        ({"mcpServers": {"a": {"command": "x", "env": {"A": 1}}}}, '"env"'),
        ({"command": "x"}, "mcpServers"),
    ],
)
def test_any_other_dict_is_refused_with_the_expected_form(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Client(config)


@pytest.mark.parametrize("package", ["fastmcp.server.server", "mcp.server.fastmcp.server"])
def test_a_server_object_of_another_package_is_refused_with_advice(package: str) -> None:
    other = type("FastMCP", (), {"__module__": package})()
    with pytest.raises(ConfigError, match=r'a FastMCP of .*Client\("server\.py"\)'):
        Client(other)


@pytest.mark.parametrize("target", ["", "  ", [], [1], 5, None, b"python", "python 'unclosed"])
def test_any_other_target_is_refused_with_the_valid_kinds(target: Any) -> None:
    with pytest.raises(ConfigError, match="a target is a URL"):
        Client(target)


def test_a_server_of_this_process_is_not_started_by_looking_at_it() -> None:
    server = Server("quiet")
    assert find(server).server is server
