"""The table of options, on the command line and in the environment."""

import os
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
import typer.main
from msgspec import Struct

from limpet.backs.proxy.options import ProxyOptions
from limpet.cli.asked import ServeCommand
from limpet.cli.behind import ServerSource, check_fit, source
from limpet.cli.config.literals import from_arguments
from limpet.cli.option_values import laid_over
from limpet.cli.options import Options
from limpet.cli.process_options import ProcessOptions
from limpet.cli.refusing import remedies
from limpet.cli.rows import ONE_SERVER, entries
from limpet.cli.whole import app
from limpet.cli.words import read as read_words
from limpet.config import AdminSettings, HttpSettings, Limits, RateLimits, Settings, Times
from limpet.errors import ConfigError, Exposed
from tests.command_line import run
from tools.ports import free_port


def read(*words: str) -> tuple[Options, ProcessOptions]:
    asked = read_words(["serve", *words], os.environ)
    assert asked is not None
    return asked.options, asked.process


def test_an_option_that_is_not_given_has_no_value() -> None:
    assert read("a.py") == (Options(), ProcessOptions())


def test_each_form_of_option_is_read_into_its_member() -> None:
    options, process = read(
        "a.py",
        "--grace=7",
        "--in-order",
        "--no-stateless",
        "--allow-host=a",
        "--allow-host=b",
        "--header=X-One=1=2",
        "--header=X-Two=",
        "--duplicates=isolate",
        "--workers=2",
    )
    assert options == Options(
        times={"grace": 7.0},
        in_order=True,
        stateless=False,
        allowed_hosts=("a", "b"),
        headers={"X-One": "1=2", "X-Two": ""},
        duplicates="isolate",
    )
    assert process == ProcessOptions(workers=2)


def test_the_environment_counts_where_the_command_line_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPET_GRACE", "5")
    monkeypatch.setenv("LIMPET_DRAIN", "6")
    monkeypatch.setenv("LIMPET_ALLOW_HOST", "a b")
    monkeypatch.setenv("LIMPET_IN_ORDER", "true")
    monkeypatch.setenv("LIMPET_WORKERS", "3")
    options, process = read("a.py", "--grace=7", "--no-in-order")
    assert options == Options(times={"grace": 7.0, "drain": 6.0}, allowed_hosts=("a", "b"), in_order=False)
    assert process == ProcessOptions(workers=3)


def test_only_options_for_every_target_have_a_variable() -> None:
    variables = {entry.parameter: entry.variable for entry in entries(Options)}
    assert variables["grace"] == "LIMPET_GRACE"
    assert {variables[name] for name in ("env", "header", "token_file", "path", "namespace")} == {None}


def test_every_option_has_a_help_text() -> None:
    for kind in (Options, ProcessOptions):
        for entry in entries(kind):
            assert entry.row.help.endswith("."), entry.flag


def test_higher_options_win_and_tables_of_settings_are_merged() -> None:
    low = Options(times={"grace": 1, "drain": 2}, in_order=True, store="memory:")
    high = Options(times={"grace": 3}, in_order=False)
    assert laid_over(low, high) == Options(times={"grace": 3, "drain": 2}, in_order=False, store="memory:")


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        (
            ServerSource(url="https://h"),
            Options(env={"A": "1"}),
            "--env does not fit a URL: it is for a command after --",
        ),
        (
            ServerSource(command=("x",)),
            Options(headers={}),
            "--header does not fit a command: it is for a URL",
        ),
        (
            ServerSource(object="a.py"),
            Options(upstream_version="auto"),
            "--upstream-version does not fit a server object of Python: it is for a URL, or a command after --",
        ),
    ],
)
def test_an_option_that_does_not_fit_the_target_is_refused(
    target: ServerSource, options: Options, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_fit(options, target.kind)
    assert str(refused.value) == said


def test_options_that_fit_pass() -> None:
    for kind in ONE_SERVER:
        check_fit(Options(path="/a", times={"grace": 1}, namespace="x"), kind)


def test_a_target_is_an_object_a_url_or_a_command() -> None:
    assert source("a.py:b", ()) == ServerSource(object="a.py:b")
    assert source("HTTPS://h/mcp", ()) == ServerSource(url="HTTPS://h/mcp")
    assert source(None, ("npx", "-y")) == ServerSource(command=("npx", "-y"))
    for target, command in ((None, ()), ("a.py", ("npx",))):
        with pytest.raises(ConfigError, match=r"the target is missing|serve takes one target"):
            source(target, command)


def test_a_header_without_a_value_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError, match="--header takes NAME=VALUE"):
        read("https://h", "--header=only")


def planned_options(monkeypatch: pytest.MonkeyPatch, *words: str, **variables: str) -> Options:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    options, _ = read("a.py", *words)
    return ServeCommand(target="a.py", options=options).plan().endpoints[0].options


def test_every_setting_is_an_option_of_the_command_line_or_a_table_of_the_file() -> None:
    own = {entry.place[-1] for entry in entries(Options)}
    for field in Settings.__struct_fields__:
        assert field in {*own, "eras_by_client", "quirks", "hand_over_tools"}, field
    for field in HttpSettings.__struct_fields__:
        assert field in {*own, "host_signals"}, field
    for field in AdminSettings.__struct_fields__:
        known = {"address": "admin", "token": "admin_token_file", "allowed_hosts": "admin_hosts"}
        assert known[field] in ProcessOptions.__struct_fields__


@pytest.mark.parametrize(
    ("option", "kind", "wrong"),
    [("--limit", Limits, "body"), ("--time", Times, "idle"), ("--proxy-limit", ProxyOptions, "queued")],
)
def test_every_limit_can_be_set_by_its_name(option: str, kind: type[Struct], wrong: str) -> None:
    (entry,) = [one for one in entries(Options) if one.flag == option]
    others = {*(entry.row.members or ()), *entry.row.taken}
    for name in kind.__struct_fields__:
        default = getattr(kind(), name)
        if name in others:
            with pytest.raises(ConfigError, match="it has an option of its own"):
                read("a.py", option, f"{name}=1")
            continue
        text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default or 7.5)
        options, _ = read("a.py", option, f"{name}={text}")
        assert entry.of(options) == {name: default or 7.5}
    with pytest.raises(ConfigError, match=rf"{option}: \w+.{wrong} must be a \w*\s?number"):
        read("a.py", option, f"{wrong}=many")
    with pytest.raises(ConfigError, match="the key nothing is unknown"):
        read("a.py", option, "nothing=1")


def test_rates_are_texts_and_those_of_tools_have_names() -> None:
    with pytest.raises(ConfigError, match="a name on both sides of the dot"):
        read("a.py", "--rate", "tools.=3/s")
    options, _ = read("a.py", "--rate", "principal=100/s", "--rate", "tools.search=10/m per principal")
    assert options.rates == {"principal": "100/s", "tools": {"search": "10/m per principal"}}
    assert options.over(Settings()).rates == RateLimits(
        principal="100/s", tools={"search": "10/m per principal"}
    )


def test_a_variable_sets_several_limits_and_the_command_line_replaces_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = planned_options(
        monkeypatch,
        "--limit=running=3",
        "--grace=4",
        LIMPET_LIMIT="running=1 queued=2",
        LIMPET_TIME="idle=9 retry=1,2",
        LIMPET_RATE="tools.a=10/m per principal refusals=5/s",
    )
    assert options.limits == {"running": 3, "queued": 2}
    assert options.times == {"idle": 9.0, "retry": (1.0, 2.0), "grace": 4.0}
    assert options.rates == {"tools": {"a": "10/m per principal"}, "refusals": "5/s"}


def test_a_secret_is_no_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "abc")
    for words, said in (
        (("https://u:p@h/mcp",), "the URL has a user or a password"),
        (("https://h/mcp", "--header", "Authorization=Bearer x"), "--header Authorization has a secret"),
        (("https://h/mcp", "--store", "redis://:pw@h"), "put the URL into the variable LIMPET_STORE"),
        (("--env", "API_KEY=x", "--", "npx"), "--env API_KEY has a secret"),
    ):
        told = run("serve", *words)
        assert (told.status, said in told.err) == (2, True), told.err
    for option, value in (("--header", "Authorization: Bearer hidden"), ("--env", "hidden")):
        told = run("serve", "https://h/mcp", option, value)
        assert (told.status, "takes NAME=VALUE" in told.err, "hidden" in told.err) == (2, True, False)
    options = from_arguments(Options(headers={"Authorization": "Bearer ${TOKEN}"}), None, ())
    assert options.headers == {"Authorization": "Bearer abc"}
    assert from_arguments(Options(store="redis://:pw@h"), None, ()).store == "redis://:pw@h", (
        "from the variable"
    )


def test_a_user_of_postgresql_without_a_password_is_no_secret() -> None:
    for store in (
        "postgres://app@h:1/db",
        "postgres://h/db?listen=postgres://app@h2:1/db",
        "postgresql:///db",
    ):
        assert from_arguments(Options(store=store), None, ("store",)).store == store
    encoded = quote("postgres://u:pw@h", safe="")
    for store in ("postgres://u:pw@h/db", "postgres://h?password=pw", f"postgres://u@h/db?listen={encoded}"):
        with pytest.raises(ConfigError, match="LIMPET_STORE"):
            from_arguments(Options(store=store), None, ("store",))


def test_an_address_for_other_machines_is_refused_with_the_commands_to_use() -> None:
    both = Exposed("0.0.0.0", "the server", lacks_verifier=True, lacks_host=True)
    both.port = 81
    words = ("serve", "a b.py", "--http", "0.0.0.0:81")
    here = socket.gethostname()
    assert dict(remedies(both, words)) == {
        "for this machine only": "limpet serve 'a b.py' --http 127.0.0.1:81",
        "for clients with tokens": f"limpet serve 'a b.py' --http 0.0.0.0:81 --allow-host {here} --verifier auth.py:verify",
        "for everyone": f"limpet serve 'a b.py' --http 0.0.0.0:81 --allow-host {here} --allow-anonymous",
    }
    host = Exposed("fd00::1", "the server", lacks_verifier=False, lacks_host=True)
    behind = ("serve", "--http=[fd00::1]:81", "--", "npx", "x")
    assert dict(remedies(host, behind)) == {
        "use": "limpet serve '--http=[fd00::1]:81' --allow-host '[fd00::1]' -- npx x"
    }
    anyone = Exposed("10.0.0.1", "the server", lacks_verifier=True, lacks_host=False)
    anyone.port = 81
    assert dict(remedies(anyone, behind))["for this machine only"] == (
        "limpet serve --http 127.0.0.1:81 -- npx x"
    )
    one_state = Exposed("10.0.0.1", "the server", lacks_verifier=True, lacks_host=False, anonymous=False)
    assert "for everyone" not in dict(remedies(one_state, words))
    assert "allow_anonymous" not in str(one_state)


def test_a_refused_address_of_a_variable_keeps_its_port_and_one_state_for_all_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "one_state.py"
    file.write_text("from limpet import Server\nserver = Server('s', state='principal')\n")
    port = free_port()
    monkeypatch.setenv("LIMPET_HTTP", f"0.0.0.0:{port}")
    told = run("serve", str(file))
    assert told.status == 2
    assert f"limpet serve {file} --http 127.0.0.1:{port}\n" in told.err
    assert "anonymous" not in told.err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LIMPET_LIMIT", "runing=3", "limpet: LIMPET_LIMIT: limits: the key runing is unknown"),
        ("LIMPET_LIMIT", "running", "limpet: LIMPET_LIMIT takes NAME=VALUE"),
        ("LIMPET_TIME", "grace=1", "limpet: LIMPET_TIME grace: it has an option of its own"),
        ("LIMPET_LIMIT", f"running={10**30}", f"running={10**30}: give at most {2**48}"),
        ("LIMPET_WORKERS", "5000", "limpet: LIMPET_WORKERS 5000: give at most 1024"),
        ("LIMPET_LOG_LEVEL", "loud", "limpet: LIMPET_LOG_LEVEL is one of debug"),
        ("LIMPET_STORE", "foo:", "limpet: LIMPET_STORE foo: is not the URL of a store"),
        ("LIMPET_GRACE", "long", "limpet: LIMPET_GRACE: give a number, not 'long'"),
    ],
)
def test_an_error_in_a_variable_names_the_variable(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    told = run("serve", "no_such_file.py")
    assert told.status == 2
    assert said in told.err


def commands(group: Any, *names: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command


COMMANDS: Final = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_examples_that_can_be_read(name: str) -> None:
    command = COMMANDS[name]
    examples = re.findall(rf"\[bold\]limpet {name}( .*)?\[/bold\]", command.help)
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" | ")[0])
        command.make_context(name, words)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_no_types_of_python(name: str) -> None:
    shown = run(*name.split(), "--help").out
    assert "Usage: " in shown
    assert re.findall(r"<\w+|x[<>]=|list\[|INTEGER|FLOAT|TEXT|\[default: \(", shown) == []
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "is_flag", False) or parameter.metavar, parameter.name


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ("serve", "serve [OPTIONS] [TARGET]"),
        ("call", "call [OPTIONS] [TARGET] TOOL key=value…"),
        ("check", "check [OPTIONS] URL"),
        ("sessions show", "sessions show [OPTIONS] SESSION"),
    ],
)
def test_the_usage_names_the_arguments(words: str, usage: str) -> None:
    shown = " ".join(run(*words.split(), "--help").out.split())
    assert f"limpet {usage} " in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve a.py --workers 0", "--workers: give 1 or more, not 0"),
        ("serve a.py --grace nan", "--grace: give 0 or more, not nan"),
        ("check http://h/mcp --timeout 31", "'--timeout': give 0.1 to 30, not 31"),
        ("sessions ls --limit 0", "'--limit': give 1 or more, not 0"),
        ("inspect a.py --timeout 0", "'--timeout': give 0.1 or more, not 0"),
    ],
)
def test_a_number_that_is_too_small_or_too_large_is_refused(words: str, said: str) -> None:
    refused = run(*words.split())
    assert refused.status == 2
    assert said in refused.err


def test_every_option_of_serve_is_in_a_group() -> None:
    panels = {
        option.rich_help_panel
        for option in COMMANDS["serve"].params
        if option.name not in ("help_all", "only", "target")
    }
    assert len(panels) == 7
    assert None not in panels
