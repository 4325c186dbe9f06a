"""The address of the admin surface: which ones are accepted, and with which token."""

import socket
import ssl
import sys
from pathlib import Path

import pytest

from limpet.cli.admin import admin
from limpet.cli.process_options import ProcessOptions
from limpet.config import LOOPBACK_HOSTS, AdminSettings
from limpet.errors import ConfigError
from limpet.ops.admin.address import VARIABLE, open_admin

TOKEN = "0123456789abcdef"
HERE = "127.0.0.1:0"
EVERYWHERE = "0.0.0.0:0"


@pytest.fixture(autouse=True)
def _no_token_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (AdminSettings(address=HERE), "no terminal.*--admin-token-file FILE, or set LIMPET_ADMIN_TOKEN"),
        (AdminSettings(address=HERE, token="short"), "16 to 512 characters"),
        (AdminSettings(address=HERE, token="sixteen letters with spaces"), "no spaces"),
        (AdminSettings(address=EVERYWHERE), "reached from other machines: .*--admin-token-file FILE"),
        (AdminSettings(address=EVERYWHERE, token=TOKEN), "--admin-host admin.example.com"),
        (AdminSettings(address="localhost"), "--admin takes HOST:PORT"),
        (AdminSettings(address="unix:/nowhere/at/all", token=TOKEN), "cannot listen on unix:/nowhere"),
    ],
)
def test_a_surface_that_cannot_be_safe_is_refused(settings: AdminSettings, said: str) -> None:
    with pytest.raises(ConfigError, match=said), open_admin(settings):
        pass


def test_an_error_never_shows_the_token() -> None:
    with pytest.raises(ConfigError) as raised, open_admin(AdminSettings(address=HERE, token="secret")):
        pass
    assert "secret" not in str(raised.value)


def test_a_terminal_gets_a_new_token_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    tokens: set[str] = set()
    for _ in range(2):
        with open_admin(AdminSettings(address=HERE)) as surface:
            assert surface.lines() == [("admin", surface.url), ("token", surface.token)]
            tokens.add(surface.token)
    assert len(tokens) == 2
    assert all(len(token) >= 24 for token in tokens)
    # An operator of another machine does not see this terminal.
    with pytest.raises(ConfigError, match="other machines"), open_admin(AdminSettings(address=EVERYWHERE)):
        pass


def test_a_given_token_counts_before_the_variable_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "f" * 16)
    with open_admin(AdminSettings(address=HERE)) as surface:
        assert surface.token == "f" * 16
        assert surface.lines() == [("admin", surface.url)]
    with open_admin(AdminSettings(address=HERE, token=TOKEN)) as surface:
        assert surface.token == TOKEN


def test_tls_is_for_other_machines_only() -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with open_admin(AdminSettings(address=HERE, token=TOKEN), tls) as surface:
        assert surface.url.startswith("http://127.0.0.1:")
    hosts = (*LOOPBACK_HOSTS, "admin.example.com")
    with open_admin(AdminSettings(address=EVERYWHERE, token=TOKEN, allowed_hosts=hosts), tls) as surface:
        assert surface.url.startswith("https://0.0.0.0:")


def test_a_unix_socket_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with open_admin(AdminSettings(address=f"unix:{path}", token=TOKEN)) as surface:
        assert path.is_socket()
        assert surface.url == f"unix:{path}:/"
    assert not path.exists()


def test_a_port_in_use_is_reported_with_the_right_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: Address already in use.* --admin HOST"),
            open_admin(AdminSettings(address=f"127.0.0.1:{port}", token=TOKEN)),
        ):
            pass


def test_the_options_become_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    options = ProcessOptions(admin=HERE, admin_token_file=str(file), admin_hosts=("ops.example",))
    with admin(options) as surface:
        assert surface is not None
        assert surface.token == TOKEN
        assert surface.hosts == (*LOOPBACK_HOSTS, "ops.example")
    with admin(ProcessOptions()) as surface:
        assert surface is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ProcessOptions(admin_hosts=("ops.example",)), "--admin-host needs --admin HOST:PORT"),
        (ProcessOptions(admin_token_file="x"), "--admin-token-file needs --admin HOST:PORT"),
        (
            ProcessOptions(admin=HERE, admin_token_file="/nowhere/token"),
            "--admin-token-file /nowhere/token cannot be read",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(options: ProcessOptions, said: str) -> None:
    with pytest.raises(ConfigError, match=said), admin(options):
        pass
