"""An error names the place of the wrong value: the option, the variable, or the key of the file."""

from pathlib import Path

import pytest

from limpet.cli.value_places import with_places

FILE = """
log_level = "loud"
store = "foo:"
times.grace = 5
[servers.own]
object = "a.py"
token_file = "nothing"
[servers.other]
object = "b.py"
store = "bar:"
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--log-level is one of", "limpet.toml: log_level is one of"),
        ("limpet.toml: [servers.own] --store foo: is", "limpet.toml: store foo: is"),
        ("limpet.toml: [servers.other] --store bar: is", "limpet.toml: [servers.other] store bar: is"),
        ("--token-file nothing is empty", "limpet.toml: [servers.own] token_file nothing is empty"),
        ("--grace and --http", "limpet.toml: times.grace and LIMPET_HTTP"),
        ("--workers 5: leave --no-workers out", "--workers 5: leave --no-workers out"),
        ("--admin-token-file needs --admin", "LIMPET_ADMIN_TOKEN_FILE needs --admin"),
        ("trusted_proxies: 'x' is no network", "LIMPET_TRUSTED_PROXIES: 'x' is no network"),
        ("limpet.toml: [servers.own] --http x", "limpet.toml: [servers.own] LIMPET_HTTP x"),
        ("--unknown and a--store", "--unknown and a--store"),
    ],
)
def test_each_name_is_the_one_of_its_place(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("limpet.toml").write_text(FILE)
    variables = {
        "LIMPET_HTTP": "x", "LIMPET_WORKERS": "9", "LIMPET_ADMIN_TOKEN_FILE": "f", "LIMPET_TRUSTED_PROXIES": "x",
    }  # fmt: skip
    words = ("serve", "./limpet.toml", "--workers=5", "--", "--http")
    assert with_places(text, words, variables) == said


def test_variables_count_for_the_commands_that_read_them() -> None:
    variables = {"LIMPET_ADMIN_URL": "x", "LIMPET_STORE": "x", "LIMPET_ADMIN": "x"}
    assert with_places("--admin, --store", ("sessions", "ls"), variables) == "LIMPET_ADMIN_URL, --store"
    assert with_places("--admin, --store", ("inspect", "a.py"), variables) == "--admin, --store"
    assert with_places("--admin, --store", ("serve",), variables) == "LIMPET_ADMIN, LIMPET_STORE"
