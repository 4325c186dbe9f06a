"""The table of options, on the command line and in the environment."""

from typing import Any

import pytest
import typer.main

from holdfast.cli.behind import Source, check_fit, source
from holdfast.cli.collecting import collected
from holdfast.cli.options import ONE_SERVER, Options, entries, laid_over
from holdfast.cli.process_options import ProcessOptions
from holdfast.cli.whole import app
from holdfast.errors import ConfigError


def read(*words: str) -> tuple[Options, ProcessOptions]:
    group: Any = typer.main.get_command(app)
    given = group.commands["serve"].make_context("serve", list(words)).params
    return collected(Options, given), collected(ProcessOptions, given)


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
    monkeypatch.setenv("HOLDFAST_GRACE", "5")
    monkeypatch.setenv("HOLDFAST_DRAIN", "6")
    monkeypatch.setenv("HOLDFAST_ALLOW_HOST", "a b")
    monkeypatch.setenv("HOLDFAST_IN_ORDER", "true")
    monkeypatch.setenv("HOLDFAST_WORKERS", "3")
    options, process = read("a.py", "--grace=7", "--no-in-order")
    assert options == Options(times={"grace": 7.0, "drain": 6.0}, allowed_hosts=("a", "b"), in_order=False)
    assert process == ProcessOptions(workers=3)


def test_only_options_for_every_target_have_a_variable() -> None:
    variables = {entry.parameter: entry.variable for entry in entries(Options)}
    assert variables["grace"] == "HOLDFAST_GRACE"
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
            Source(url="https://h"),
            Options(env={"A": "1"}),
            "--env does not fit a URL: it is for a command after --",
        ),
        (Source(command=("x",)), Options(headers={}), "--header does not fit a command: it is for a URL"),
        (
            Source(object="a.py"),
            Options(upstream_version="auto"),
            "--upstream-version does not fit a server object of Python: it is for a URL, or a command after --",
        ),
    ],
)
def test_an_option_that_does_not_fit_the_target_is_refused(
    target: Source, options: Options, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_fit(options, target.kind)
    assert str(refused.value) == said


def test_options_that_fit_pass() -> None:
    for kind in ONE_SERVER:
        check_fit(Options(path="/a", times={"grace": 1}, namespace="x"), kind)


def test_a_target_is_an_object_a_url_or_a_command() -> None:
    assert source("a.py:b", ()) == Source(object="a.py:b")
    assert source("HTTPS://h/mcp", ()) == Source(url="HTTPS://h/mcp")
    assert source(None, ("npx", "-y")) == Source(command=("npx", "-y"))
    for target, command in ((None, ()), ("a.py", ("npx",))):
        with pytest.raises(ConfigError, match=r"serve (needs a|takes one) target"):
            source(target, command)


def test_a_header_without_a_value_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError, match="--header takes NAME=VALUE"):
        read("https://h", "--header=only")
