"""`limpet serve`: options over settings, and errors that help."""

import io
import json
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import pytest
from typer.testing import CliRunner

from limpet import Principal, Server, Settings, Times, __version__
from limpet.auth.verifiers import JwtVerifier, StaticTokens
from limpet.cli.asked import ServeCommand
from limpet.cli.banner import (
    ReadyReport,
    ServerFacts,
    client_config,
    commands,
    facts,
    initialize_call,
    show,
)
from limpet.cli.behind import ServerSource
from limpet.cli.config.plan import Endpoint
from limpet.cli.options import Options
from limpet.cli.prepared import Prepared, prepare
from limpet.cli.process_options import ProcessOptions
from limpet.cli.rows import entries
from limpet.cli.whole import app
from limpet.config import LOOPBACK_HOSTS, HttpSettings, Quirks
from limpet.errors import ConfigError
from limpet.fronts.http.decide.host_and_origin import HeadRules
from limpet.fronts.http.http1.sockets import address
from limpet.server.proxy import Proxy
from tests.command_line import run
from tests.support import BOUND

SMALL: Final = str(Path(__file__).parents[1] / "fronts" / "fixtures" / "small.py")


def limpet(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "limpet", *arguments],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:9", ("::1", 9)),
        (":8080", ("127.0.0.1", 8080)),
        ("8080", ("127.0.0.1", 8080)),
    ],
)
def test_an_address_may_leave_the_host_out(text: str, meant: tuple[str, int]) -> None:
    assert address(text) == meant


@pytest.mark.parametrize("text", ["localhost", "localhost:", "localhost:http", "localhost:70000", ""])
def test_an_invalid_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"HOST:PORT such as 127\.0\.0\.1:8000"):
        address(text)


def test_an_option_changes_only_its_own_setting() -> None:
    own = Settings(times=Times(idle=5, grace=7), in_order=True, duplicates="isolate")
    assert Options().over(own) == own
    changed = Options(times={"grace": 0, "drain_notice": 3}, duplicates="reject", stateless=True).over(own)
    times = Times(idle=5, grace=0, drain_notice=3)
    assert changed == Settings(times=times, in_order=True, stateless=True)


def test_options_apply_to_a_module_that_mounts_its_server(tmp_path: Path) -> None:
    app = tmp_path / "mounted.py"
    app.write_text("from limpet import Server\nserver = Server('mounted')\napp = server.asgi()\n")
    server = prepare(ServerSource(object=f"{app}:server"), Options(times={"grace": 7}, store="memory:"))
    assert (server.settings.times.grace, server.store) == (7, "memory:")


def test_a_table_of_scopes_is_for_a_server_in_front_of_another_one() -> None:
    scopes = {"tools": {"send": ["mail.send"]}}
    for source in (ServerSource(command=("true",)), ServerSource(url="http://localhost:1/mcp")):
        server = prepare(source, Options(scopes=scopes))
        assert isinstance(server, Proxy)
        assert server.back.access.known() == {"mail.send"}
    with pytest.raises(ConfigError, match=r"its functions declare\s+their scopes"):
        prepare(ServerSource(object=SMALL), Options(scopes=scopes))


def test_hosts_are_added_to_those_of_this_machine() -> None:
    settings = Options(allowed_hosts=("mcp.example.com",), path="api").http()
    assert settings.allowed_hosts == (*LOOPBACK_HOSTS, "mcp.example.com")
    assert settings.path == "/api"
    assert settings.allow_anonymous is None


def test_a_program_that_reads_the_address_in_the_banner_finds_its_other_lines_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Writes(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    written: list[str] = []
    monkeypatch.setattr(sys, "stderr", Writes())
    known = facts(Server("mine"), url="http://127.0.0.1:1/mcp")
    show(ReadyReport(servers=(known,), patience=1.0), more=[("admin", "http://127.0.0.1:2/")])
    [banner] = written
    assert "  serving   http://127.0.0.1:1/mcp" in banner
    assert banner.endswith("  admin     http://127.0.0.1:2/\n")


def test_the_banner_can_be_pasted() -> None:
    command = shlex.split(initialize_call("http://127.0.0.1:1/mcp"))
    body = json.loads(command[command.index("-d") + 1])
    assert (command[0], body["method"]) == ("curl", "initialize")
    config = json.loads(client_config([facts(Server("mine"), url="http://127.0.0.1:1/mcp")]))
    assert config["mcpServers"]["mine"]["url"] == "http://127.0.0.1:1/mcp"
    public = facts(Server("mine"), url="http://127.0.0.1:1/mcp", public="https://mcp.example.com/mcp")
    assert json.loads(client_config([public]))["mcpServers"]["mine"]["url"] == "https://mcp.example.com/mcp"


def test_a_server_without_components_is_served_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    full = Server("full")
    full.add_tool(lambda: 1, name="one")
    for server, warned in ((Server("empty"), True), (full, False)):
        show(ReadyReport(servers=(facts(server, url="http://127.0.0.1:1/mcp"),), patience=1.0))
        assert ("  warning   it has no tools, resources and prompts" in capsys.readouterr().err) is warned


def test_the_banner_suggests_commands_of_limpet() -> None:
    server = Server("mine")
    url = "http://127.0.0.1:1/mcp"
    assert commands(facts(server, url=url)) == (
        f"limpet inspect {url}",
        f"limpet call {url} TOOL key=value…",
    )
    server.add_tool(lambda a, b=1: a + b, name="add")
    server.verifier = StaticTokens({"a-token-of-a-user": Principal(subject="ada")})
    assert (
        commands(facts(server, url="http://0.0.0.0:1/mcp"))[1]
        == f"limpet call {url} add a=… --token-env TOKEN"
    )
    assert commands(facts(server, url="unix:/run/a.sock:/mcp"))[0].startswith(
        "curl -i --unix-socket /run/a.sock"
    )


def test_help_shows_twenty_options_and_help_all_every_one() -> None:
    short, whole = (CliRunner().invoke(app, ["serve", word]).output for word in ("--help", "--help-all"))
    options = {entry.flag for kind in (ProcessOptions, Options) for entry in entries(kind)} | {
        "--stdio",
        "--only",
    }
    assert {flag for flag in options if re.search(rf"{flag}[ ,]", whole)} == options
    assert len({flag for flag in options if re.search(rf"{flag}[ ,]", short)}) == 20
    assert "--help-all" in short


def test_operators_see_a_server_by_its_name_in_the_file_or_by_the_option(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(
        "from limpet import Server\na, b, c = Server('s'), Server('s'), Server('s')\n"
    )
    endpoints = [
        Endpoint(
            name=name,
            source=ServerSource(object=f"{tmp_path / 'two.py'}:{key}"),
            options=Options(name=given, namespace=key),
        )
        for key, name, given in (("a", "docs", None), ("b", "code", "git"), ("c", "", "alone"))
    ]
    prepared = Prepared(endpoints)
    assert [server.label for server in prepared.servers.values()] == ["docs", "git", "alone"]
    shown = [facts.name for facts in prepared.report("http://127.0.0.1:8000").servers]
    assert shown == ["docs", "git", "alone"]
    assert [server.name for server in prepared.servers.values()] == ["s"] * 3, "clients see its own name"


def test_the_banner_of_all_addresses_and_of_a_unix_socket_can_be_pasted_too(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from limpet import Server\nserver = Server('mine')\n")
    source = ServerSource(object="app.py", directory=str(tmp_path))
    open_to_all = Options(allowed_hosts=("vm",), allow_anonymous=True)
    for url in ("http://0.0.0.0:1/mcp", "http://[::]:1/mcp"):
        prepared = Prepared((Endpoint(source=source, options=open_to_all),))
        assert prepared.report(url).servers[0].public == "http://vm:1/mcp"
    rules = HeadRules(open_to_all.http())
    for url in ("http://0.0.0.0:1/mcp", "http://[::]:1/mcp"):
        host = urlsplit(shlex.split(initialize_call(url))[2]).netloc
        assert rules.host_allowed(host)
    words = shlex.split(initialize_call("unix:/run/a b.sock:/mcp"))
    assert words[2:5] == ["--unix-socket", "/run/a b.sock", "http://localhost/mcp"]


def test_the_command_of_the_banner_has_a_token_if_the_server_needs_one() -> None:
    async def verify(token: str) -> Principal | None:
        return Principal(subject=token)

    for server, needed in ((Server("open"), False), (Server("closed", verifier=verify), True)):
        shown = facts(server, url="http://127.0.0.1:1/mcp")
        command = initialize_call(shown.url, needs_token=shown.needs_token)
        assert ('-H "Authorization: Bearer $TOKEN"' in command) is needed


def test_the_banner_says_how_to_sign_in_if_an_authorization_server_gives_the_tokens() -> None:
    verifier = JwtVerifier(issuer="https://login.example", audience="https://tools.example/mcp")
    shown = facts(Server("closed", verifier=verifier), url="http://127.0.0.1:1/mcp")
    assert [command.split()[-1] for command in commands(shown)] == ["--oauth", "--oauth"]


def test_the_lines_of_a_reason_stay_below_their_server_in_the_banner(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = ServerFacts(
        name="a", version="", has="", url="http://127.0.0.1:1/mcp", behind=("x: fails: 1\n2", "y: answers")
    )
    show(ReadyReport(servers=(server,), patience=1.0))
    assert "  behind    x: fails: 1\n            2\n  behind    y: answers\n" in capsys.readouterr().err


def test_the_banner_counts_tools_resources_and_prompts() -> None:
    server = Server("small")
    assert server.summary == ""
    server.add_tool(lambda: "", name="one")
    for uri in ("a://{x}", "b://{x}"):
        server.add_resource(uri, lambda x: x, name="any")
    assert server.summary == "1 tool, 2 templates"


def test_the_version_is_printed() -> None:
    assert run("--version") == (0, f"limpet {__version__}\n", "")


def test_a_port_in_use_is_one_line_and_no_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = limpet("serve", SMALL, "--http", f"127.0.0.1:{port}")
    assert told.returncode == 2
    assert told.stdout == ""
    assert told.stderr.startswith(f"limpet: cannot listen on 127.0.0.1:{port}: Address already in use")
    assert told.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.py", "--http", "127.0.0.1:0"], "there is no file nowhere.py"),
        (["ftp://h/mcp"], "the URL of a server begins with http:// or https://, not ftp://"),
        ([SMALL, "--http", "0.0.0.0:0"], "--allow-anonymous"),
        ([SMALL, "--http", "0.0.0.0:0", "--allow-anonymous"], "--allow-host"),
        ([SMALL, "--log-level", "loud"], "--log-level is one of"),
        (["--", "no-such-program"], "cannot start no-such-program: there is no such program"),
        (["--", "./no-such-program"], "cannot start ./no-such-program: there is no such program"),
        (["--cwd", "/nowhere", "--", "sh"], "cannot start sh: there is no directory /nowhere"),
    ],
)
def test_an_unusable_command_line_fails_with_one_line(arguments: list[str], said: str) -> None:
    refused = run("serve", *arguments)
    assert refused.status == 2
    assert said in refused.err
    assert "Traceback" not in refused.err


def test_an_error_in_the_authors_code_shows_where(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("server = 1 / 0\n")
    told = limpet("serve", str(tmp_path / "fails.py"), "--http", "127.0.0.1:0")
    assert told.returncode == 1
    assert "fails.py:1: ZeroDivisionError: division by zero" in told.stderr
    assert told.stderr.count("\n") == 1, "frames of the command line are of no use to the author"


def test_the_host_of_the_public_url_is_accepted_with_and_without_a_port() -> None:
    rules = HeadRules(Options(public_url="https://mcp.example.com:8443/mcp").http())
    assert rules.host_allowed("mcp.example.com")
    assert rules.host_allowed("mcp.example.com:8443")
    assert rules.host_allowed("localhost:8000")
    assert not rules.host_allowed("example.com")
    assert HttpSettings(public_url="http://[fd00::1]:80/mcp").hosts == (*LOOPBACK_HOSTS, "[fd00::1]")


def test_a_file_names_eras_and_quirks_by_client(tmp_path: Path) -> None:
    file = tmp_path / "limpet.toml"
    tables = (
        "[eras_by_client]\nold = 'sessions'\n[quirks.odd]\nisolate = true\n[servers.a]\nobject = 'a.py'\n"
    )
    file.write_text(tables)
    (endpoint,) = ServeCommand(target=str(file)).plan().endpoints
    settings = endpoint.options.over(Settings())
    assert (settings.eras_by_client, settings.quirks) == ({"old": "sessions"}, {"odd": Quirks(isolate=True)})
    assert msgspec.json.decode(msgspec.json.encode(endpoint.options), type=Options) == endpoint.options
    file.write_text(tables.replace("isolate", "insulate"))
    with pytest.raises(ConfigError, match=r"quirks.odd: the key insulate is unknown: did you mean isolate"):
        ServeCommand(target=str(file)).plan()
