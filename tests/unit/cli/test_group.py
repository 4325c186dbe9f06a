"""A server of a file that is made of others."""

from pathlib import Path

import msgspec
import pytest

from limpet import Server
from limpet.cli.config.plan import Plan
from limpet.cli.config.sources import planned
from limpet.cli.loaded import named_files
from limpet.cli.options import Options
from limpet.cli.prepared import Prepared
from limpet.cli.process_options import ProcessOptions
from limpet.config import HttpSettings
from limpet.errors import ConfigError

PARTS = """
[servers.web]
url = "https://web.example/mcp"
concurrency = 2
hide_tools = ["secret*"]

[servers.files]
command = ["files", "server.py"]

"""
WHOLE = PARTS + '[servers.all]\nservers = ["web", "files"]\n'


@pytest.fixture(autouse=True)
def _in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str, *only: str) -> Plan:
    Path("limpet.toml").write_text(text)
    return planned("limpet.toml", (), Options(), ProcessOptions(), only=only)


def made(text: str) -> Server:
    (server,) = Prepared(read(text).endpoints).servers.values()
    assert isinstance(server, Server)
    return server


def test_the_whole_has_the_only_address_and_its_parts_their_names_as_prefixes() -> None:
    plan = read(WHOLE + 'prefixes = { web = "w" }')
    (endpoint,) = plan.endpoints
    assert (endpoint.name, endpoint.options.path) == ("all", "/all/mcp")
    assert [(part.name, part.prefix) for part in endpoint.source.parts] == [("web", "w"), ("files", "files")]
    server = made(WHOLE + 'prefixes = { web = "w", files = "" }')
    assert [(one.name, one.names.prefix) for one in server.behind] == [("web", "w"), ("files", "")]
    web = server.behind[0].proxy
    assert web.options.concurrency == 2
    assert web.naming is not None
    assert web.naming.outer("tools", "secret_key") is None
    assert server.summary == "in front of web, files"


def test_a_token_needs_the_scopes_of_the_whole_for_every_component() -> None:
    server = made(WHOLE + 'oidc_scopes = ["team"]')
    assert server.scopes.needs.scopes == {"team"}
    with pytest.raises(ConfigError, match="no verifier"):
        server.front(HttpSettings())


def test_a_part_with_a_path_has_its_own_address_too() -> None:
    text = WHOLE.replace("concurrency = 2", 'path = "/web"\nconcurrency = 2\nverifier = "a.py:b"')
    assert [endpoint.name for endpoint in read(text).endpoints] == ["web", "all"]
    assert [endpoint.name for endpoint in read(WHOLE, "files").endpoints] == ["files"]
    assert [endpoint.name for endpoint in read(WHOLE, "all").endpoints] == ["all"]


def test_a_plan_with_parts_can_be_sent_to_a_worker() -> None:
    plan = read(WHOLE)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_files_of_parts_are_watched() -> None:
    Path("server.py").touch()
    assert named_files(read(WHOLE).endpoints) == [str(Path("server.py").absolute())]


def test_objects_are_parts_and_their_clashes_are_refused_at_start() -> None:
    for name in ("one", "two"):
        Path(f"{name}.py").write_text(
            f'from limpet import Server\nserver = Server("{name}")\n@server.tool\ndef work() -> str:\n    return "{name}"\n'
        )
    text = '[servers.one]\nobject = "one.py"\n[servers.two]\nobject = "two.py"\n[servers.all]\nservers = ["one", "two"]\n'
    assert list(made(text).tools.entries) == ["one_work", "two_work"]
    with pytest.raises(ConfigError, match=r"\[servers.two\].*work"):
        made(text + 'prefixes = { one = "", two = "" }')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PARTS + '[servers.all]\nservers = ["web", "none"]', "none: the file has no such server; it has web, files, all"),
        (PARTS + '[servers.all]\nservers = ["web", "web"]', "web is in it twice"),
        (PARTS + '[servers.all]\nservers = "web"', "servers must be a list of texts"),
        (WHOLE + 'url = "http://h"', "it has url and servers"),
        (WHOLE + 'prefixes = { all = "x" }', "prefixes.all: this server is not in servers"),
        (WHOLE + 'prefixes = { files = "a b" }', "the prefix 'a b' is invalid"),
        (WHOLE + 'prefixes = { files = "web" }', "have the prefix 'web'"),
        (WHOLE + "concurrency = 1", "concurrency: write it into the table of the server that it is for: web, files"),
        (WHOLE + '[servers.more]\nservers = ["all"]', "[servers.all] it is made of other servers and cannot be a part"),
        (PARTS + '[servers.x]\nurl = "http://h"\nprefixes = { x = "y" }', "they are for a server that is made of others"),
        (WHOLE.replace("concurrency = 2", 'verifier = "a.py:b"'), "[servers.web] verifier: this server is a part of another one"),
        (WHOLE.replace("concurrency = 2", 'store = "memory:"'), "[servers.web] store: this server is a part of another one"),
        (WHOLE + "stateless = true", "cannot be stateless"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Prepared(read(text).endpoints).front()
    assert said in str(refused.value)
    assert "limpet.toml: [servers." in str(refused.value)


def test_the_components_of_an_object_are_hidden_and_renamed_before_its_prefix() -> None:
    Path("one.py").write_text(
        'from limpet import Server\nserver = Server("one")\n'
        "for name in ('work', 'secret', 'read'):\n    server.add_tool(lambda: '', name=name)\n"
    )
    server = made(
        '[servers.one]\nobject = "one.py"\nhide_tools = ["secret"]\nrename_tools = { read = "open" }\n'
        '[servers.all]\nservers = ["one"]\n'
    )
    assert list(server.tools.entries) == ["one_work", "one_open"]
