"""`limpet install`: the entry of a server in the file of a client program. The rest of the file stays."""

import io
import json
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from limpet.cli.installing.clients import CLIENTS
from limpet.cli.installing.files import with_entry
from limpet.cli.whole import app
from limpet.errors import ConfigError

URL = "https://example.com/mcp"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kitchen.py").write_text("from limpet import Server\nserver = Server('my kitchen')\n")
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["install", *words])


def entry_of(client: str, name: str) -> Any:
    program = CLIENTS[client]
    text = program.place().read_text()
    found: Any = tomllib.loads(text) if program.place().suffix == ".toml" else json.loads(text)
    for step in program.member:
        found = found[step]
    return found[name]


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_gets_a_program(client: str, home: Path) -> None:
    result = run("kitchen.py", "--client", client, "--yes", "--env", "KEY=v")
    assert result.exit_code == 0, result.output
    entry = entry_of(client, "my-kitchen")
    words = ["-m", "limpet", "serve", f"{home}/kitchen.py:server", "--stdio"]
    assert (entry["command"], entry["args"], entry["env"]) == (sys.executable, words, {"KEY": "v"})
    again = run("kitchen.py", "--client", client, "--yes", "--env", "KEY=v")
    assert "has this entry already" in again.output


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        ("claude-code", {"type": "http", "url": URL}),
        ("cursor", {"url": URL}),
        ("vscode", {"type": "http", "url": URL}),
        ("codex", {"url": URL}),
        ("gemini", {"httpUrl": URL}),
        (
            "claude-desktop",
            {"command": sys.executable, "args": ["-m", "limpet", "serve", URL, "--stdio"]},
        ),
    ],
)
def test_a_url_is_an_entry_of_its_own_where_the_client_can(client: str, entry: dict[str, Any]) -> None:
    assert run(URL, "--client", client, "--yes").exit_code == 0
    assert entry_of(client, "example-com") == entry


def test_a_program_needs_a_name() -> None:
    words = ("--client", "cursor", "--yes")
    assert "give --name NAME" in str(run(*words, "--", "npx", "-y", "x").exception)
    assert run(*words, "--name", "files", "--", "npx", "-y", "x").exit_code == 0
    assert entry_of("cursor", "files")["args"][-4:] == ["--", "npx", "-y", "x"]


def test_the_change_is_shown_and_a_dry_run_writes_nothing(home: Path) -> None:
    result = run("kitchen.py", "--client", "cursor", "--dry-run")
    assert result.exit_code == 0
    assert '+    "my-kitchen": {' in result.output
    assert not (home / ".cursor").exists()


def test_without_a_terminal_nothing_is_written(home: Path) -> None:
    assert "give --yes" in str(run("kitchen.py", "--client", "cursor").exception)
    assert not (home / ".cursor").exists()


@pytest.mark.parametrize(("answer", "written"), [("y\n", True), ("\n", False), ("", False)])
def test_the_person_at_the_terminal_decides(
    answer: str, written: bool, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    typed = io.StringIO(answer)
    monkeypatch.setattr(typed, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", typed)
    with pytest.raises(SystemExit) as ended:
        app(["install", "kitchen.py", "--client", "cursor"])
    assert not ended.value.code
    assert (home / ".cursor" / "mcp.json").exists() is written
    assert "Write this for Cursor? [y/N]" in capfd.readouterr().err


def test_the_rest_of_a_json_file_stays(home: Path) -> None:
    file = home / ".gemini" / "settings.json"
    file.parent.mkdir()
    before = (
        '{\n\t"theme": "dark",\n\t"mcpServers": {\n\t\t"a": {\n\t\t\t"url": "x"\n\t\t}\n\t},\n\t"z": "é"\n}\n'
    )
    file.write_text(before)
    file.chmod(0o640)
    assert run(URL, "--client", "gemini", "--yes").exit_code == 0
    after = file.read_text()
    assert set(before.splitlines()) <= set(after.splitlines())
    assert list(json.loads(after)) == ["theme", "mcpServers", "z"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_the_rest_of_a_toml_file_stays_and_its_own_table_is_replaced(home: Path) -> None:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(
        '# mine\nmodel = "x"  # best\n\n[mcp_servers.example-com]\ncommand = "old"\n\n'
        '[mcp_servers.example-com.env]\nA = "1"\n\n[mcp_servers.other]\nurl = "y"\n'
    )
    assert run(URL, "--client", "codex", "--yes").exit_code == 0
    after = file.read_text()
    assert after.startswith('# mine\nmodel = "x"  # best\n')
    assert tomllib.loads(after)["mcp_servers"] == {"other": {"url": "y"}, "example-com": {"url": URL}}


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("vscode", '{"servers": {},\n  // not closed\n'),
        ("vscode", '{"servers": {"a": tru}}'),
        ("vscode", "[" * 5_000 + "]" * 5_000),
        ("cursor", "\ufeff[]"),
        ("cursor", '{"mcpServers": []}'),
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": {"a": 1, "a": 2}}'),
        ("codex", "model = \n"),
        ("codex", f"x = {'[' * 5_000}"),
        ("codex", '[mcp_servers.example-com]\nurl = "old"\n[z]\nz = """\n[mcp_servers.example-com]\n"""\n'),
        ("codex", 'mcp_servers = { "example-com" = { url = "inline" } }\n'),
    ],
)
def test_a_file_that_would_lose_something_is_not_changed(client: str, text: str) -> None:
    file = CLIENTS[client].place()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    result = run(URL, "--client", client, "--yes")
    assert isinstance(result.exception, ConfigError)
    assert file.read_text() == text


COMMENTED = """\
// The servers of this project.
{
    /* "servers": {"old": 1}, */
    "inputs": [ {"id": "key", "type": "promptString"} ],  // asked once
    "servers": {
        "a": { "url": "http://a/mcp", "n": 1.50 }, // the "first" one
        // "b": { "url": "http://b/mcp" },
    },
}
"""


def changed(client: str, text: str, *words: str) -> str:
    """Install into a file with this text; return the new text, with its line ends."""
    file = CLIENTS[client].place()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    result = run(URL, "--client", client, "--yes", *words)
    assert result.exit_code == 0, result.output
    return file.read_bytes().decode()


def test_comments_and_the_form_of_json_stay() -> None:
    after = changed("vscode", COMMENTED)
    added = '        "example-com": {\n            "type": "http",\n            "url": "https://example.com/mcp"\n        }\n'
    mark = '        // "b": { "url": "http://b/mcp" },\n'
    assert after == COMMENTED.replace(mark, mark + added)
    assert changed("vscode", after) == after
    other = changed("vscode", after.replace("https://example.com/mcp", "http://old/mcp"))
    assert other == after, "an entry of the same name is replaced in its place"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"servers":{}}',
        '{"servers": {"a": {"url": "x"}}, "z": 1e3}',
        '{"servers": {"a": {"url": "x"} // last\n}}',
        '{\n  "servers": {\n    // none yet\n  }\n}',
        '{"z": "\\"}{ //", "servers": {"a/*": []}}',
        '{"z": [1, {"servers": {}}, "é", "\\u00e9"]}\n\n',
    ],
)
def test_each_form_of_json_gets_the_entry_and_keeps_its_other_lines(text: str) -> None:
    after = changed("vscode", text)
    kept = after.replace(" ", "").replace("\n", "")
    assert '"example-com":{"type":"http","url":"https://example.com/mcp"}' in kept
    for part in ('"a":{"url":"x"}', "1e3", "//last", "//noneyet", '"\\"}{//"', '"a/*":[]', '"\\u00e9"'):
        assert part not in text.replace(" ", "") or part in kept
    assert changed("vscode", after) == after


@pytest.mark.parametrize("client", ["vscode", "codex"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_the_mark_at_the_beginning_stay(client: str, mark: str) -> None:
    old = {"vscode": '{\r\n  "servers": {}\r\n}\r\n', "codex": '# mine\r\nmodel = "x"\r\n'}[client]
    after = changed(client, mark + old)
    assert after.startswith(mark + old[:3])
    assert "\n" not in after.replace("\r\n", "")
    assert "example-com" in after
    assert changed(client, after) == after


def test_a_table_of_toml_is_replaced_in_its_place_and_the_comments_of_the_next_one_stay() -> None:
    before = (
        '# mine\n[mcp_servers.example-com]\ncommand = "old"  # gone\n\n[mcp_servers.example-com.env]\nA = "1"\n\n'
        '# about the other one\n\n# really\n[mcp_servers.other]\nurl = "y"  # kept\n'
    )
    after = changed("codex", before)
    assert after == (
        '# mine\n[mcp_servers.example-com]\nurl = "https://example.com/mcp"\n\n# about the other one\n\n# really\n'
        '[mcp_servers.other]\nurl = "y"  # kept\n'
    )
    assert changed("codex", after) == after


def test_the_lines_of_other_servers_are_not_shown(home: Path) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text(
        '{\n  "mcpServers": {\n    "a": {\n      "env": {\n        "KEY": "secret"\n      }\n    }\n  }\n}\n'
    )
    result = run("https://example.com:8443/mcp", "--client", "cursor", "--dry-run")
    assert '+    "example-com": {' in result.output, "the port is not in the name"
    assert "secret" not in result.output


def test_a_read_only_file_a_directory_and_a_circle_of_links_are_refused(home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text("{}")
    file.chmod(0o444)
    assert "is read-only" in str(run(URL, "--client", "cursor", "--yes").exception)
    assert file.read_text() == "{}"
    file.unlink()
    file.symlink_to(file)
    assert isinstance(run(URL, "--client", "cursor", "--yes").exception, ConfigError)
    file.unlink()
    file.mkdir()
    assert "cannot be read" in str(run(URL, "--client", "cursor", "--yes").exception)


def test_a_link_to_a_file_that_does_not_exist_yet_is_followed(home: Path) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").symlink_to(home / "dotfiles" / "mcp.json")
    assert run(URL, "--client", "cursor", "--yes").exit_code == 0
    assert "example-com" in (home / "dotfiles" / "mcp.json").read_text()


def test_a_link_stays_a_link(home: Path) -> None:
    (home / ".cursor").mkdir()
    (home / "dotfiles.json").write_text("{}")
    (home / ".cursor" / "mcp.json").symlink_to(home / "dotfiles.json")
    assert run(URL, "--client", "cursor", "--yes").exit_code == 0
    assert (home / ".cursor" / "mcp.json").is_symlink()
    assert "example-com" in (home / "dotfiles.json").read_text()


def test_wrong_words_are_explained() -> None:
    assert "--client NAME is missing; NAME is one of claude-desktop" in str(run(URL).exception)
    assert "--client is one of claude-desktop" in str(run(URL, "--client", "x").exception)
    assert "use letters" in str(run(URL, "--client", "cursor", "--name", "a b").exception)
    assert "--env takes NAME=VALUE" in str(run(URL, "--client", "cursor", "--env", "x").exception)
    refused = run("http://user:word@h/mcp", "--client", "cursor", "--dry-run")
    assert "the URL has a user or a password" in str(refused.exception)
    assert "word@" not in refused.output


@pytest.mark.parametrize("text", ['quote " and \\ back', "ünï\ncode", "\x7f\x1f"])
def test_texts_of_toml_are_written_so_that_they_are_read_again(text: str) -> None:
    made = with_entry("", Path("c.toml"), ("mcp_servers",), "n", {"command": text, "env": {"a b": text}})
    assert tomllib.loads(made)["mcp_servers"]["n"] == {"command": text, "env": {"a b": text}}
