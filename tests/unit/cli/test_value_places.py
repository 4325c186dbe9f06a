"""An error names the place of the wrong value: the option, the variable, or the key of the file."""

from pathlib import Path

import pytest

from holdfast.cli.value_places import with_places

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
        ("--log-level is one of", "holdfast.toml: log_level is one of"),
        ("holdfast.toml: [servers.own] --store foo: is", "holdfast.toml: store foo: is"),
        ("holdfast.toml: [servers.other] --store bar: is", "holdfast.toml: [servers.other] store bar: is"),
        ("--token-file nothing is empty", "holdfast.toml: [servers.own] token_file nothing is empty"),
        ("--grace and --http", "holdfast.toml: times.grace and HOLDFAST_HTTP"),
        ("--workers 5: leave --no-workers out", "--workers 5: leave --no-workers out"),
        ("--admin-token-file needs --admin", "HOLDFAST_ADMIN_TOKEN_FILE needs --admin"),
        ("trusted_proxies: 'x' is no network", "HOLDFAST_TRUSTED_PROXIES: 'x' is no network"),
        ("holdfast.toml: [servers.own] --http x", "holdfast.toml: [servers.own] HOLDFAST_HTTP x"),
        ("--unknown and a--store", "--unknown and a--store"),
    ],
)
def test_each_name_is_the_one_of_its_place(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("holdfast.toml").write_text(FILE)
    variables = {
        "HOLDFAST_HTTP": "x", "HOLDFAST_WORKERS": "9", "HOLDFAST_ADMIN_TOKEN_FILE": "f", "HOLDFAST_TRUSTED_PROXIES": "x",
    }  # fmt: skip
    words = ("serve", "./holdfast.toml", "--workers=5", "--", "--http")
    assert with_places(text, words, variables) == said


def test_variables_count_for_the_commands_that_read_them() -> None:
    variables = {"HOLDFAST_ADMIN_URL": "x", "HOLDFAST_STORE": "x", "HOLDFAST_ADMIN": "x"}
    assert with_places("--admin, --store", ("sessions", "ls"), variables) == "HOLDFAST_ADMIN_URL, --store"
    assert with_places("--admin, --store", ("inspect", "a.py"), variables) == "--admin, --store"
    assert with_places("--admin, --store", ("serve",), variables) == "HOLDFAST_ADMIN, HOLDFAST_STORE"
