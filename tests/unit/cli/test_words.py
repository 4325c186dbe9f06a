"""The words of `serve`: what they mean, which are refused, and that a server starts without modules that it does not need."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import hypothesis.strategies as st
import pytest
from hypothesis import given

from limpet.cli import whole
from limpet.cli.asked import misspelt
from limpet.cli.words import read
from limpet.errors import ConfigError

WORDS: Final = (
    "a.py:server", "https://h/mcp", "--stdio", "--only", "--only=a", "--http", "--http=:0", "127.0.0.1:8000", "8000", "--grace",
    "--grace=7", "--grace=-1", "--grace=1e3", "0.5", "--workers=2", "--workers", "0", "2", "--in-order", "--no-in-order",
    "--in-order=true", "--no-stateless", "--allow-host", "--allow-host=b", "--header=X=1", "--header", "A=B=C", "only",
    "--duplicates=isolate", "--duplicates", "isolate", "--duplicates=both", "--path=/x", "--unknown", "--unknown=1",
    "--help", "-h", "-", "", "=", "--", "npx", "-y", "--store", "memory:", "--log-level=debug", "--no-grace", "--no-http=1",
)  # fmt: skip
VARIABLES: Final = {
    "LIMPET_GRACE": ("5", "", "x", "-2"),
    "LIMPET_WORKERS": ("3", "0", ""),
    "LIMPET_ALLOW_HOST": ("a b", ""),
    "LIMPET_IN_ORDER": ("true", "no", "maybe", ""),
    "LIMPET_DUPLICATES": ("isolate", "both"),
    "LIMPET_STORE": ("memory:",),
    "LIMPET_HTTP": ("127.0.0.1:9",),
}


@given(
    words=st.lists(st.sampled_from(WORDS), max_size=6),
    variables=st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(values) for name, values in VARIABLES.items()}
    ),
)
def test_any_words_are_a_command_or_help_or_an_error_of_usage(
    words: list[str], variables: dict[str, str]
) -> None:
    try:
        asked = read(["serve", *words], variables)
    except ConfigError:
        return
    own = words[: words.index("--")] if "--" in words else words
    assert (asked is None) == ("--help" in own)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--grce 5", "serve has no option --grce; did you mean --grace?"),
        ("--xyzzy=5", "serve has no option --xyzzy; --help-all shows all"),
        ("--no-grace", "serve has no option --no-grace; did you mean --grace?"),
        ("-p 80", "serve has no option -p; use --http 127.0.0.1:PORT"),
        ("a.py b.py", "serve takes one target, and 'b.py' is a second one"),
        ("--grace", "--grace needs a value"),
        ("--grace --stateless", "--grace needs a value, and --stateless is an option"),
        ("--grace x", "--grace: give a number, not 'x'"),
        ("--grace -1", "--grace: give 0 or more, not -1"),
        ("--workers 1.5", "--workers: give a whole number, not '1.5'"),
        ("--in-order=true", "--in-order takes no value"),
        ("--stdio=1", "--stdio takes no value"),
        ("--duplicates both", "--duplicates is one of reject, isolate; not 'both'"),
        ("--", "-- needs a command after it"),
    ],
)
def test_a_wrong_word_is_an_error_that_names_it_and_the_valid_form(words: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(["serve", *words.split()], {})
    assert str(refused.value).startswith(said)


def test_a_variable_has_the_value_that_the_word_would_have() -> None:
    variables = {
        "LIMPET_GRACE": "5",
        "LIMPET_WORKERS": "3",
        "LIMPET_ALLOW_HOST": "a b",
        "LIMPET_IN_ORDER": "No",
        "LIMPET_STATELESS": "1",
        "LIMPET_DUPLICATES": "isolate",
        "LIMPET_STORE": "",
    }
    asked = read(["serve", "a.py", "--grace=7"], variables)
    assert asked is not None
    options = asked.options
    assert options.times == {"grace": 7.0}, "the command line counts before the variable"
    assert (options.allowed_hosts, options.in_order, options.stateless) == (("a", "b"), False, True)
    assert (options.duplicates, options.store, asked.process.workers) == ("isolate", None, 3)
    with pytest.raises(ConfigError, match="--in-order is one of 1, true"):
        read(["serve", "a.py"], {"LIMPET_IN_ORDER": "maybe"})


def test_a_value_may_begin_with_a_dash() -> None:
    asked = read(["serve", "-", "--only", "-x", "--header", "-X=1"], {})
    assert asked is not None
    assert (asked.target, asked.only, asked.options.headers) == ("-", ("-x",), {"-X": "1"})


def test_the_usual_commands_are_read_quickly() -> None:
    everything = [
        "serve",
        "a.py:server",
        "--http",
        "127.0.0.1:8000",
        "--grace=7",
        "--in-order",
        "--allow-host=a",
    ]
    asked = read(everything, {"LIMPET_DRAIN": "3"})
    assert asked is not None
    assert (asked.target, asked.process.http) == ("a.py:server", "127.0.0.1:8000")
    assert asked.named == ("allow_host", "grace", "http", "in_order"), "LIMPET_DRAIN is a variable"
    assert (asked.options.times, asked.options.in_order) == ({"grace": 7.0, "drain": 3.0}, True)
    behind = read(["serve", "--stdio", "--", "npx", "--help"], {})
    assert behind is not None
    assert (behind.command, behind.stdio) == (("npx", "--help"), True)


@pytest.mark.parametrize("words", [[], ["--version"], ["serve", "--help"], ["serve", "a.py", "--help-all"]])
def test_help_and_other_commands_are_for_typer(words: list[str]) -> None:
    assert read(words, {}) is None


NOT_NEEDED: Final = ("typer", "rich", "pydantic", "sqlite3", "redis", "tomllib", "jwt", "cryptography",
                     "limpet.client", "limpet.upstream", "limpet.auth.oauth", "limpet.server.proxy",
                     "limpet.cli.workers", "limpet.cli.whole")  # fmt: skip

PROGRAM: Final = f"""
import gc, os, sys
from limpet import Server

async def lifespan(server):
    print(*[name for name in {NOT_NEEDED!r} if name in sys.modules], len(sys.modules), gc.isenabled(), flush=True)
    os._exit(0)
    yield

server = Server("small", lifespan=lifespan)
"""


def test_a_server_starts_without_modules_that_it_does_not_need(tmp_path: Path) -> None:
    file = tmp_path / "small.py"
    file.write_text(PROGRAM)
    words = [sys.executable, "-I", "-m", "limpet", "serve", str(file), "--http", "127.0.0.1:0"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    *loaded, count, collects = done.stdout.split()
    assert loaded == []
    assert int(count) < 545, (
        "a server loads more modules than before: see `python -X importtime -m limpet serve …`"
    )
    assert collects == "False", "the collector pauses while a server starts"


def test_the_collector_leaves_out_what_was_made_at_the_start() -> None:
    program = (
        "from limpet.cli import collector; import gc; collector.pause(); collector.go_on(); "
        "assert gc.isenabled() and gc.get_freeze_count() > 1000"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_misspelt_variable_is_a_warning_that_names_the_nearest_one() -> None:
    [line] = misspelt({"LIMPET_STORRE": "x", "LIMPET_STORE": "x", "LIMPET_ADMIN_TOKEN": "x"})
    assert (
        line
        == "warning: LIMPET_STORRE is not a variable of Limpet and has no effect; did you mean LIMPET_STORE?"
    )
    kubernetes = {"LIMPET_PORT": "tcp://10.0.0.1:80", "LIMPET_SERVICE_HOST": "10.0.0.1", "HOME": "/"}
    assert list(misspelt(kubernetes)) == []


def test_every_variable_that_the_source_names_is_known() -> None:
    source = Path(whole.__file__).parents[1]
    named = {
        name for file in source.rglob("*.py") for name in re.findall(r"LIMPET_[A-Z_]*[A-Z]", file.read_text())
    }
    assert list(misspelt(dict.fromkeys((f"{name}X" for name in named), "x"))) != []
    assert list(misspelt(dict.fromkeys(named, "x"))) == []
