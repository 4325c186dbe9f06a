"""Stores on the command line: named by URL, shown without secrets, and one of its own for several workers."""

import contextlib
import stat
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

import pytest

from limpet import Server
from limpet.cli import private_store, stores
from limpet.cli.banner import facts
from limpet.errors import ConfigError
from tests.command_line import Done, run
from tests.support import BOUND, async_test
from tests.unit.server.peer import serving

ROOT: Final = Path(__file__).parents[3]
SMALL: Final = str(Path(__file__).parents[1] / "fronts" / "fixtures" / "small.py")


def without_packages(*packages: str) -> str:
    """Return the program of the command line on a machine without these packages."""
    return f"import sys; sys.modules.update(dict.fromkeys({packages!r})); from limpet.cli.main import main; main()"


def process(program: str, *arguments: str) -> Done:
    """Run a program as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:word@localhost", "redis://***@localhost"),
        ("rediss://user:w@rd@host:1/2?ssl_keyfile=x", "rediss://***@host:1/2"),
        ("redis://:w/o?r#d@host/0", "redis://***@host/0"),
        ("redis+sentinel://u:word@a:1,b:2/main", "redis+sentinel://***@a:1,b:2/main"),
        ("postgres://u:w@rd@a,b:1/db?sslpassword=x", "postgres://***@a,b:1/db"),
        ("memory:", "memory:"),
    ],
)
def test_a_url_is_shown_without_its_credentials(url: str, shown: str) -> None:
    assert stores.redacted(url) == shown
    assert stores.shown(url, "orders") == shown


@async_test
async def test_a_file_is_shown_as_the_one_that_exists() -> None:
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
        server = Server("orders", store="sqlite:///st%20ore.db")
        shown = facts(server, url="http://h").store
        assert shown == f"SQLite file {Path.cwd()}/st ore.orders.db"
        async with serving(server):
            assert Path(shown.removeprefix("SQLite file ")).exists()


@pytest.mark.parametrize(
    "url",
    [
        "memory:",
        "sqlite:///a.db",
        "redis://h",
        "valkey://h:1",
        "redis+cluster://a:1,b:2",
        "redis+sentinel://a,b/m",
        "postgres://u@a,b/db",
        "postgresql://a:1/db?sslmode=verify-full",
    ],
)
def test_every_kind_of_store_passes(url: str) -> None:
    stores.check(url)


@pytest.mark.parametrize("url", ["reddis://:word@h", "word", "mysql://u:word@h/db", "redis://:word@h:port"])
def test_an_invalid_store_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        stores.check(url)
    assert "word" not in str(refused.value) or url == "word"
    assert "redis:" in str(refused.value)


def test_a_private_store_is_readable_by_its_owner_only_and_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with private_store.private_store() as url:
        home = Path(url.removeprefix("sqlite:///")).parent
        assert home.parent == tmp_path
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        Path(home, "store.db").touch()
    assert list(tmp_path.iterdir()) == []


def test_the_last_process_removes_a_private_store(tmp_path: Path) -> None:
    home = tmp_path / "limpet-x"
    home.mkdir()
    url = f"sqlite:///{home}/store.db"
    first, last = private_store.PrivateStoreUser(url), private_store.PrivateStoreUser(url)
    first.remove_if_last()
    assert home.exists()
    last.remove_if_last()
    assert not home.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--store", "mysql://u:sEcret@h/db"],
            "LIMPET_STORE mysql: is not the URL of a store: it must begin with one of memory:",
        ),
        (["--store", "sqlite:"], "sqlite:////absolute/path.db"),
        (["--store", "sqlite:///nowhere/at/all/store.db"], "/nowhere/at/all"),
        (["--store", "redis://:sEcret@127.0.0.1:1"], "redis://***@127.0.0.1:1 cannot be used"),
        (["--store", "redis:/:sEcret@127.0.0.1:1"], "write redis://host:port, with two slashes"),
        (["--store", "redis://h", "--namespace", "a b"], "namespace='a b'"),
        (
            ["--store", "postgres://h/db?sslmode=sometimes"],
            "prefer, require, verify-ca, verify-full; start it, correct that, or name another with --store URL",
        ),
        (["--stdio", "--workers", "2"], "leave --workers out"),
        (["--stdio"], "--stdio listens on no address: leave out --stdio, or --http"),
        (["--stdio", "--tls-cert", "c.pem"], "--stdio listens on no address: leave out --stdio, or --http"),
        (
            ["--store", "memory:", "--workers", "2"],
            "and the memory store serves one process only: use --store",
        ),
        (
            ["--store", "redis://:sEcret@127.0.0.1:1", "--workers", "2"],
            "name another with LIMPET_STORE URL",
        ),
    ],
)
def test_an_unusable_store_is_explained(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A URL with a password is refused as an argument: it comes from the variable.
    store = next((word for word in arguments if "sEcret" in word), None)
    if store is not None:
        monkeypatch.setenv("LIMPET_STORE", store)
    words = arguments if store is None else arguments[2:]
    line = ("serve", SMALL, "--http", "127.0.0.1:0", *words)
    # Workers write to the standard error of the process itself.
    refused = process(without_packages(), *line) if "--workers" in words else run(*line)
    assert refused.status == 2, refused.err
    assert said in refused.err
    assert refused.err.count("limpet: ") == 1
    assert "sEcret" not in refused.err
    assert "Traceback" not in refused.err


def test_the_store_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "LIMPET_STORE" in run("serve", "--help").out
    monkeypatch.setenv("LIMPET_STORE", "mysql:")
    refused = run("serve", SMALL, "--http", "127.0.0.1:0")
    assert (refused.status, "mysql: is not the URL of a store" in refused.err) == (2, True)


EXTRAS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize(
    ("package", "wanted"),
    [("redis", "redis[hiredis]"), ("hiredis", "redis[hiredis]"), ("asyncpg", *EXTRAS["postgres"])],
)
def test_a_missing_package_of_a_store_is_named_with_its_install_command(package: str, wanted: str) -> None:
    url = "postgres://h/app" if package == "asyncpg" else "redis://h"
    words = ("serve", SMALL, "--http", "127.0.0.1:0", "--store", url)
    refused = process(without_packages(package), *words)
    assert refused.status == 2
    assert f"needs the package {package}, which is not installed: pip install '{wanted}'" in refused.err
    assert "Traceback" not in refused.err


def test_a_target_that_cannot_be_served_ends_all_workers(tmp_path: Path) -> None:
    words = ("serve", str(tmp_path / "none.py"), "--http", "127.0.0.1:0", "--workers", "3")
    refused = process(without_packages(), *words)
    assert refused.status == 2
    assert refused.err.count("there is no file") == 1


def test_a_machine_without_a_place_for_temporary_files_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null/nowhere")
    with (
        pytest.raises(ConfigError, match="Set TMPDIR to a directory that can be written"),
        private_store.private_store(),
    ):
        pass
