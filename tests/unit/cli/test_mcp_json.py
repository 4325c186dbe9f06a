"""`mcp.json`: files as clients write them."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from limpet.cli.behind import ServerSource
from limpet.cli.config.mcp_json import read_mcp_json
from limpet.cli.config.plan import Endpoint
from limpet.cli.options import Options
from limpet.errors import ConfigError


def read(content: Any, file: Path) -> dict[str, Endpoint]:
    file.parent.mkdir(exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return {endpoint.name: endpoint for endpoint in read_mcp_json(file).endpoints}


def test_a_file_of_an_editor_that_writes_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    assert list(read('\ufeff{"mcpServers": {"a": {"command": "x"}}}', tmp_path / "mcp.json")) == ["a"]


def test_servers_that_are_not_chosen_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"old": {"type": "ws", "url": "http://h"}, "new": {"command": "x"}}}')
    assert [endpoint.name for endpoint in read_mcp_json(file, ("new",)).endpoints] == ["new"]


def test_a_file_of_claude_desktop_is_read_with_its_literal_keys(tmp_path: Path) -> None:
    servers = read(
        {
            "globalShortcut": "Ctrl+Space",
            "mcpServers": {
                "brave-search": {
                    "command": "npx",
                    "args": ["-y", "@modelcontextprotocol/server-brave-search"],
                    "env": {"BRAVE_API_KEY": "abc"},
                },
                "My Server": {"command": "/usr/bin/my"},
            },
        },
        tmp_path / "claude_desktop_config.json",
    )
    assert servers["brave-search"].source == ServerSource(
        command=("npx", "-y", "@modelcontextprotocol/server-brave-search"), directory=str(tmp_path)
    )
    assert servers["brave-search"].options == Options(
        path="/brave-search/mcp", namespace="brave-search", env={"BRAVE_API_KEY": "abc"}
    )
    assert servers["My Server"].options.path == "/My-Server/mcp"


def test_a_file_of_cursor_is_read_with_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("API_TOKEN", "abc")
    monkeypatch.delenv("LEVEL", raising=False)
    with caplog.at_level(logging.WARNING):
        servers = read(
            {
                "mcpServers": {
                    "remote": {
                        "url": "https://h/mcp?level=${LEVEL:-low}",
                        "headers": {"Authorization": "Bearer ${env:API_TOKEN}"},
                        "autoApprove": ["x"],
                    },
                    "local": {
                        "type": "stdio",
                        "command": "${workspaceFolder}/run",
                        "args": ["${userHome}/x"],
                        "cwd": "sub",
                    },
                    "off": {"command": "x", "disabled": True, "env": {"A": "${env:NOT_SET}"}},
                    "off-too": {"command": "x", "enabled": False},
                }
            },
            tmp_path / ".cursor" / "mcp.json",
        )
    assert list(servers) == ["remote", "local"]
    assert servers["remote"].source.url == "https://h/mcp?level=low"
    assert servers["remote"].options.headers == {"Authorization": "Bearer abc"}
    assert servers["local"].source.command == (f"{tmp_path}/run", f"{Path.home()}/x")
    assert servers["local"].options.cwd == f"{tmp_path}/sub"
    assert "remote: ignored: autoApprove" in caplog.text


def test_a_file_of_vs_code_is_read(tmp_path: Path) -> None:
    servers = read(
        {
            "inputs": [],
            "servers": {
                "github": {"type": "http", "url": "https://h/mcp"},
                "local": {"type": "stdio", "command": "x", "args": ["${workspaceFolder}"]},
            },
        },
        tmp_path / ".vscode" / "mcp.json",
    )
    assert servers["github"].source == ServerSource(url="https://h/mcp", directory=str(tmp_path))
    assert servers["local"].source.command == ("x", str(tmp_path))


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamableHttp", "sse"])
def test_the_names_of_the_http_transports_are_accepted(kind: str, tmp_path: Path) -> None:
    (one,) = read(
        {"mcpServers": {"a": {"transport": kind, "url": "https://h"}}}, tmp_path / "m.json"
    ).values()
    assert one.source.url == "https://h"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"type": "ws", "url": "https://h"}, "type must be stdio or http"),
        ({}, "needs a command, or a url with type http, and not both"),
        ({"type": "stdio"}, "a server of type stdio needs a command"),
        ({"type": "http", "command": "x"}, "needs a command, or a url"),
        ({"command": "x", "url": "https://h"}, "a server of type stdio needs a command, and no url"),
        ({"command": ["x"]}, "command must be a text, not a list"),
        ({"command": "x", "args": "y"}, "args must be a list of texts, not a text"),
        ({"command": "x", "env": {"A": 1}}, "env.A must be a text, not a whole number"),
        ({"command": "x", "envFile": ".env"}, "envFile is not supported: write the variables into env"),
        ({"command": "x", "env": {"A": "${input:key}"}}, "has ${input:key}, which has no value here"),
        ({"command": "x", "env": {"A": "${NOT_SET}"}}, "needs the environment variable NOT_SET"),
        ("x", "must be an object with command or url"),
    ],
)
def test_one_broken_entry_is_refused_by_its_name(
    entry: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ConfigError) as refused:
        read({"mcpServers": {"fine": {"command": "x"}, "broken": entry}}, tmp_path / "mcp.json")
    assert f"mcp.json: broken: {said}" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "names no server"),
        ("{}", "names no server"),
        ('{"mcpServers": {}}', "names no server that is enabled"),
        ('{"mcpServers": {"a": {"command": "x", "disabled": true}}}', "names no server that is enabled"),
        (f'{{"mcpServers": {"[" * 100_000}', "cannot be read: maximum recursion depth exceeded"),
        ('{"mcpServers": ', "cannot be read: Expecting value: line 1"),
        ('{"mcpServers": {"a": {}, "a": {}}}', "cannot be read: it has 'a' twice"),
        ('{"mcpServers": {"///": {"command": "x"}}}', "///: the name cannot be part of a path"),
    ],
)
def test_a_file_without_servers_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text, tmp_path / "mcp.json")
    assert said in str(refused.value)
