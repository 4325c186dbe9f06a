"""`limpet.toml`: its valid contents, and errors that name the file, the table and the key."""

from pathlib import Path
from typing import Any

import pytest

from limpet.backs.components import ComponentTable
from limpet.cli import words as command_words
from limpet.cli.behind import ServerSource
from limpet.cli.config.plan import Plan
from limpet.cli.config.sources import planned
from limpet.cli.options import Options
from limpet.cli.prepared import prepare
from limpet.cli.process_options import ProcessOptions
from limpet.config import RateLimits, Settings
from limpet.errors import ConfigError


@pytest.fixture(autouse=True)
def _in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(
    text: str, *only: str, options: Options | None = None, process: ProcessOptions | None = None
) -> Plan:
    Path("limpet.toml").write_text(text)
    return planned("limpet.toml", (), options or Options(), process or ProcessOptions(), only=only)


def refusal(text: str, **given: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        read(text, **given)
    return str(refused.value)


FULL = """
http = "0.0.0.0:80"
workers = 4
log_level = "info"
store = "redis://cache"
allowed_hosts = ["mcp.example.com"]

[times]
grace = 60
stream_age = [10, 20]

[limits]
running = 5

[servers.files]
command = ["npx", "-y", "some-server"]
env = { ROOT = "/srv" }
cwd = "work"
children = 8
concurrency = 1
strict = true

[servers.legacy]
url = "https://legacy.example/mcp"
path = "/old"
headers = { X-Team = "red" }
token_file = "legacy.token"
upstream_version = "sessions"
store = "memory:"
namespace = "mine"

[servers.own]
object = "app.py:server"
verifier = "app.py:verify"
in_order = true

[servers.own.times]
grace = 5

[servers.own.proxy]
queued = 3
"""


def test_a_whole_file_is_one_frozen_plan(tmp_path: Path) -> None:
    plan = read(FULL)
    here = str(tmp_path)
    assert plan.process == ProcessOptions(http="0.0.0.0:80", workers=4, log_level="info")
    files, legacy, own = plan.endpoints
    assert (files.name, legacy.name, own.name) == ("files", "legacy", "own")
    assert files.source == ServerSource(command=("npx", "-y", "some-server"), directory=here)
    times: dict[str, Any] = {"grace": 60, "stream_age": (10, 20)}
    assert files.options == Options(
        path="/files/mcp",
        namespace="files",
        store="redis://cache",
        allowed_hosts=("mcp.example.com",),
        times=times,
        limits={"running": 5},
        env={"ROOT": "/srv"},
        cwd=f"{here}/work",
        children=8,
        concurrency=1,
        strict=True,
    )
    assert legacy.source == ServerSource(url="https://legacy.example/mcp", directory=here)
    assert (legacy.options.path, legacy.options.store, legacy.options.namespace) == (
        "/old",
        "memory:",
        "mine",
    )
    assert legacy.options.token_file == f"{here}/legacy.token"
    assert own.source == ServerSource(object="app.py:server", directory=here)
    assert own.options.verifier == f"{here}/app.py:verify"
    assert own.options.times == {"grace": 5, "stream_age": (10, 20)}
    assert own.options.proxy == {"queued": 3}


def test_the_command_line_counts_before_the_file() -> None:
    plan = read(
        FULL,
        options=Options(times={"grace": 1}, in_order=False, store="memory:"),
        process=ProcessOptions(workers=1),
    )
    assert plan.process == ProcessOptions(http="0.0.0.0:80", workers=1, log_level="info")
    for endpoint in plan.endpoints:
        assert endpoint.options.times == {"grace": 1, "stream_age": (10, 20)}
        assert (endpoint.options.store, endpoint.options.in_order) == ("memory:", False)


def test_the_components_that_clients_see_are_in_the_table_of_a_server() -> None:
    text = '[servers.web]\ncommand = ["true"]\nhide_tools = ["delete_*"]\nrename_tools = { search = "find", "get_*" = "fetch_*" }\n'
    (endpoint,) = read(text).endpoints
    table = prepare(endpoint.source, endpoint.options).components
    assert table == ComponentTable(
        hide_tools=("delete_*",), rename_tools={"search": "find", "get_*": "fetch_*"}
    )
    words = ["--hide-tool", "delete_*", "--rename-tool", "search=find", "--rename-tool", "get_*=fetch_*"]
    asked = command_words.read(["serve", *words, "--", "true"], {})
    assert asked is not None
    assert prepare(ServerSource(command=("true",)), asked.options).components == table
    with pytest.raises(ConfigError, match=r"one [*] each"):
        prepare(ServerSource(command=("true",)), Options(rename_tools={"get_*": "x"}))


def test_relative_paths_begin_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "x.toml").write_text(
        'store = "sqlite:///s.db"\n[servers.a]\nurl = "http://h"\n[servers.b]\nurl = "http://h"\nstore = "sqlite:////s.db"'
    )
    first, second = planned("a b/x.toml", (), Options(), ProcessOptions()).endpoints
    assert first.options.store == f"sqlite:///{str(tmp_path).replace(' ', '%20')}/a%20b/s.db"
    assert second.options.store == "sqlite:////s.db"


def test_only_some_servers_may_be_chosen() -> None:
    assert [one.name for one in read(FULL, "own", "files").endpoints] == ["files", "own"]
    assert "--only other: the file has no such server; it has files, legacy, own" in refusal_of_only("other")
    broken = FULL + "[servers.broken]\ncommand = ['x']\nenv = {A = '${SURELY_NOT_SET}'}\n"
    assert [one.name for one in read(broken, "own").endpoints] == ["own"]
    with pytest.raises(ConfigError, match="--only is for a file"):
        planned("app.py", (), Options(), ProcessOptions(), only=("a",))


def refusal_of_only(name: str) -> str:
    with pytest.raises(ConfigError) as refused:
        read(FULL, name)
    return str(refused.value)


SERVER = '[servers.a]\nurl = "http://h"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "limpet.toml names no server: it needs a table [servers.NAME]"),
        ("servers = 3", "limpet.toml names no server"),
        (f"x = {'[' * 5_000}", "limpet.toml cannot be read: maximum recursion depth exceeded"),
        ("x = ", "limpet.toml cannot be read: Invalid value (at end of document)"),
        (
            "worker = 2\n" + SERVER,
            "limpet.toml: the key worker is unknown: did you mean workers? Allowed are ",
        ),
        ("zzz = 2\n" + SERVER, "limpet.toml: the key zzz is unknown. Allowed are "),
        (
            'url = "http://h"\n' + SERVER,
            "limpet.toml: the key url is in the wrong table: write it in the table of a server, [servers.NAME]",
        ),
        ('path = "/x"\n' + SERVER, "limpet.toml: the key path is in the wrong table"),
        (
            "workers = 2\n[servers.a]\nworkers = 2",
            "limpet.toml: [servers.a] the key workers is in the wrong table: write it at the top of the file",
        ),
        (
            "workers = 0\n" + SERVER,
            "limpet.toml: workers must be a whole number of 1 or more",
        ),
        (
            'workers = "2"\n' + SERVER,
            "limpet.toml: workers must be a whole number of 1 or more, not a text",
        ),
        (
            'duplicates = "x"\n' + SERVER,
            "limpet.toml: duplicates must be one of reject, isolate",
        ),
        (
            'allowed_hosts = "h"\n' + SERVER,
            "limpet.toml: allowed_hosts must be a list of texts, not a text",
        ),
        ("[times]\nidle = 0\n" + SERVER, "limpet.toml: times: idle=0.0: give a number of seconds above 0"),
        ("[times]\nidel = 0\n" + SERVER, "limpet.toml: times: the key idel is unknown: did you mean idle?"),
        ("[times]\nretry = 1\n" + SERVER, "limpet.toml: times.retry must be a list of two numbers"),
        (
            '[limits]\nbody = "4 MB"\n' + SERVER,
            "limpet.toml: limits.body must be a whole number, not a text",
        ),
        (
            "[rates.tools]\nx = '1'\n" + SERVER,
            "limpet.toml: rates: tools.x='1': write a number of calls in a",
        ),
        ("limits = 3\n" + SERVER, "limpet.toml: limits must be a table, not a whole number"),
        (
            SERVER + "strict = 1",
            "limpet.toml: [servers.a] strict must be true or false, not a whole number",
        ),
        (
            SERVER + "comand = []",
            "limpet.toml: [servers.a] the key comand is unknown: did you mean command?",
        ),
        (
            SERVER + "headers = {X = 1}",
            "limpet.toml: [servers.a] headers.X must be a text, not a whole number",
        ),
        (
            SERVER + "env = {A = '1'}",
            "limpet.toml: [servers.a] env does not fit a URL: it is for a command",
        ),
        (SERVER + "path = 'mcp'", "limpet.toml: [servers.a] path must begin with a slash"),
        (SERVER + "path = '/a/../b'", "limpet.toml: [servers.a] path must begin with a slash"),
        (SERVER + "path = '/a?b'", "limpet.toml: [servers.a] path must begin with a slash"),
        (SERVER + "proxy = {queued = 'x'}", "limpet.toml: [servers.a] proxy.queued must be a whole number"),
        (SERVER + "scopes = {tols = {}}", "[servers.a] scopes: the key tols is unknown: did you mean tools?"),
        (SERVER + "scopes = ['a']", "[servers.a] scopes must be a table, not a list"),
        (SERVER + "scopes = {tools = ['a']}", "[servers.a] scopes.tools must be a table, not a list"),
        (SERVER + "scopes = {tools = {send = 'a'}}", "scopes.tools.send must be a list of texts, not a text"),
        (SERVER + "scopes = {server = [1]}", "[servers.a] scopes.server must be a list of texts"),
        (SERVER + "scopes = {server = ['a b']}", "[servers.a] scopes: server: 'a b' is not a scope"),
        (SERVER + "scopes = {hidden = ['a']}", "[servers.a] scopes: hidden names 'a', which no row"),
        (
            "[servers.a]",
            "limpet.toml: [servers.a] needs one of command, url, object and servers; it has none",
        ),
        (SERVER + "object = 'a.py'", "needs one of command, url, object and servers; it has url and object"),
        ("[servers.'a b']\nurl = 'http://h'", "[servers.a b] the name cannot be part of a path"),
        ("[servers.'..']\nurl = 'http://h'", "[servers...] the name cannot be part of a path"),
        ("[servers]\na = 1", "limpet.toml: [servers.a] must be a table"),
        ("[servers.a]\ncommand = 'npx x'", "[servers.a] command must be a list of texts, not a text"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_allowed_values(text: str, said: str) -> None:
    assert said in refusal(text)


def test_an_option_of_one_server_does_not_fit_a_file() -> None:
    said = refusal(SERVER, options=Options(headers={"A": "1"}))
    assert (
        said
        == "--header does not fit a file with several servers: it is for a URL; write it into the table of a server"
    )


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("token = 'SEcret'", "token: write no secret into this file; use token_file or token_env"),
        ("headers = {Authorization = 'Bearer SEcret'}", "headers.Authorization: write no secret"),
        ("headers = {X-Api-Key = 'SEcret'}", "headers.X-Api-Key: write no secret"),
        ("env = {GITHUB_TOKEN = 'SEcret'}", "env.GITHUB_TOKEN: write no secret"),
        ("env = {PASSWORD = 'SEcret'}", "env.PASSWORD: write no secret"),
        ("store = 'redis://:SEcret@h'", "store: write no password"),
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_shown(line: str, key: str) -> None:
    said = refusal(f"[servers.a]\nurl = 'http://h'\n{line}")
    assert f"limpet.toml: [servers.a] {key}" in said
    assert "SEcret" not in said


def test_a_password_in_the_url_of_a_server_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal("[servers.a]\nurl = 'https://user:SEcret@h/mcp'")
    assert "limpet.toml: [servers.a] url: write no user and password" in said
    assert "SEcret" not in said
    monkeypatch.setenv("PASSWORD", "abc")
    (one,) = read("[servers.a]\nurl = 'https://user:${PASSWORD}@h/mcp?at=@'").endpoints
    assert one.source.url == "https://user:abc@h/mcp?at=@"
    assert read("[servers.a]\nurl = 'https://h/@me/mcp'").endpoints


def test_a_byte_order_mark_is_no_part_of_the_file() -> None:
    assert read("\ufeff[servers.a]\nurl = 'http://h'").endpoints


def test_a_password_of_the_store_of_all_servers_is_refused() -> None:
    assert "limpet.toml: store: write no password" in refusal("store = 'redis://:word@h'\n" + SERVER)


def test_a_secret_comes_from_a_variable_or_from_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "abc")
    monkeypatch.delenv("NOT_SET", raising=False)
    (one,) = read(
        "[servers.a]\ncommand = ['sh', '-c', 'echo $${HOME}']\n"
        "env = {API_TOKEN = '${A_TOKEN}', KEY = 'header:x-key', LEVEL = '${NOT_SET:-low}', SORT = 'key'}"
    ).endpoints
    assert one.source.command == ("sh", "-c", "echo ${HOME}")
    assert one.options.env == {"API_TOKEN": "abc", "KEY": "header:x-key", "LEVEL": "low", "SORT": "key"}
    said = refusal("[servers.a]\nurl = 'http://h'\nheaders = {Authorization = 'Bearer ${NOT_SET}'}")
    assert said == "limpet.toml: [servers.a] needs the environment variable NOT_SET, which is not set"
    assert "${input:x}, which has no value here" in refusal("[servers.a]\nurl = '${input:x}'")


def test_the_token_variable_of_the_command_line_is_not_sent_to_the_urls_of_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LIMPET_UPSTREAM_TOKEN", "abc")
    assert read(SERVER).endpoints[0].options.token_env is None
    (one,) = planned("http://h", (), Options(), ProcessOptions()).endpoints
    assert one.options.token_env == "LIMPET_UPSTREAM_TOKEN"
    for target, options in (("http://h", Options(token_file="x")), ("app.py", Options())):
        (one,) = planned(target, (), options, ProcessOptions()).endpoints
        assert one.options.token_env is None


def test_a_file_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"other\.toml cannot be read: .*No such file"):
        planned("other.toml", (), Options(), ProcessOptions())


def test_rates_are_a_table_for_all_servers_and_for_one() -> None:
    plan = read(
        '[rates]\nprincipal = "100/s"\n[servers.a]\ncommand = ["a"]\n[servers.a.rates.tools]\nfind = "10/m"\n'
        '[servers.b]\nurl = "https://b.example"\n'
    )
    first, second = (one.options.over(Settings()).rates for one in plan.endpoints)
    assert first == RateLimits(principal="100/s", tools={"find": "10/m"})
    assert second == RateLimits(principal="100/s")
