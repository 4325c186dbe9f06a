"""The two set-ups of docs/authorization-setups.md: its files and commands run, with addresses of this machine."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from limpet import Client, Principal, Server
from limpet.auth.verifiers import StaticTokens
from tests.asgi import Peer
from tests.client.servers import PATIENT
from tests.http.serving import wait_until_connected
from tests.interop.oauth.processes import SYSTEM_BROWSER, Authority, authority
from tests.interop.peers import PATIENCE, ROOT
from tests.support import async_test
from tools.ports import free_port

PAGE: Final = (ROOT / "docs" / "authorization-setups.md").read_text(encoding="utf-8")
FILE: Final = re.compile(r"^```python[^\n]*\n(# (?P<name>\w+\.py)\n.*?)^```$", re.MULTILINE | re.DOTALL)
# Those that are continued in the next line are examples of options.
COMMAND: Final = re.compile(r"^limpet serve .*[^\\\n]$", re.MULTILINE)
FIRST, SECOND, GATEWAY = COMMAND.findall(PAGE)
REGISTERED: Final = re.search(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BOTH: Final = ["ada has 3 unread letters", "sent to bob"]


class Setup(Struct):
    """A server and its authorization server, and the page's words for them in this machine's."""

    directory: Path
    at: Authority
    here: Callable[[str], str]
    """Returns a text of the page with the addresses of this machine."""

    def environment(self) -> dict[str, str]:
        """Return the environment of the page's programs: a browser that agrees, and a place for tokens."""
        own = {"BROWSER": SYSTEM_BROWSER, "XDG_STATE_HOME": str(self.directory)}
        return {**os.environ, **own, "NIGHTLY_SECRET": "the secret of the nightly run"}

    def words(self, command: str) -> list[str]:
        """Return a command of the page."""
        program, *rest = shlex.split(self.here(command))
        assert program == "limpet"
        return [sys.executable, "-m", "limpet", *rest]

    def printed(self, file: str) -> list[str]:
        """Run a program of the page; return its lines."""
        done = subprocess.run(
            [sys.executable, file],
            cwd=self.directory,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def happened(self) -> list[str]:
        """Return the requests at the authorization server since the last call."""
        return [event["event"] for event in self.at.rest()]


@contextmanager
def running(directory: Path, command: str, **config: Any) -> Iterator[Setup]:
    """Run the authorization server and the server of a set-up."""
    port, callback = free_port(), free_port()
    server = f"http://127.0.0.1:{port}"
    clients = config.get("clients", [])
    for client in clients:
        client["redirect_uris"] = [uri.replace(":8765", f":{callback}") for uri in client["redirect_uris"]]
    with authority(directory, f"{server}/mcp", **config) as at:
        places = {
            "https://tools.example.com": server,
            "https://id.example.com": at.issuer,
            "127.0.0.1:8000": f"127.0.0.1:{port}",
            ":8765": f":{callback}",
        }

        def here(text: str) -> str:
            for name, place in places.items():
                text = text.replace(name, place)
            return text

        for found in FILE.finditer(PAGE):
            (directory / found["name"]).write_text(here(found[1]), encoding="utf-8")
        (directory / "gateway.secret").write_text("the secret of the gateway\n", encoding="utf-8")
        setup = Setup(directory, at, here)
        with (directory / "server.log").open("wb") as log:
            process = subprocess.Popen(setup.words(command), cwd=directory, stdout=log, stderr=log)
        try:
            wait_until_connected(port, process)
            yield setup
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    with running(tmp_path_factory.mktemp("first"), FIRST) as setup:
        yield setup


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    assert REGISTERED is not None
    clients = json.loads(REGISTERED[1])
    with running(tmp_path_factory.mktemp("second"), SECOND, clients=clients, audience="mail-api") as setup:
        yield setup


def test_a_client_without_a_token_sees_the_values_of_the_page(first: Setup) -> None:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    posted = urllib.request.Request(first.here("https://tools.example.com/mcp"), b"{}", headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(posted, timeout=PATIENCE)
    shown = first.here(PAGE).splitlines()
    assert refused.value.code == 401
    assert f"www-authenticate: {refused.value.headers['www-authenticate']}" in shown
    refused.value.close()
    metadata = first.here("https://tools.example.com/.well-known/oauth-protected-resource/mcp")
    with urllib.request.urlopen(metadata, timeout=PATIENCE) as page:
        assert page.read().decode() in shown


def test_a_client_with_nothing_but_the_url_registers_signs_in_and_steps_up_once(first: Setup) -> None:
    assert first.printed("client.py") == BOTH
    assert first.happened() == ["registered", "agreed", "granted", "agreed", "granted"]
    assert first.printed("client.py") == BOTH
    assert first.happened() == []


def test_a_program_of_a_user_that_was_registered_by_hand_signs_in_and_steps_up(second: Setup) -> None:
    assert second.printed("desk.py") == BOTH
    assert second.happened() == ["agreed", "granted", "agreed", "granted"]


def test_a_client_over_stdio_uses_the_sign_in_of_a_gateway_that_was_registered_by_hand(second: Setup) -> None:
    @async_test
    async def run() -> None:
        command, environment = second.words(GATEWAY), second.environment()
        async with Client(
            command, cwd=second.directory, env=environment, timeout=PATIENCE, times=PATIENT
        ) as client:
            assert (await client.call_tool("unread")).data == BOTH[0]
            assert (await client.call_tool("send", {"to": "bob", "text": "hello"})).data == BOTH[1]

    run()
    assert second.happened() == ["agreed", "granted", "agreed", "granted"]


def test_a_service_without_a_user_is_a_principal_of_its_own(second: Setup) -> None:
    assert second.printed("nightly.py") == ["nightly has 3 unread letters"]
    assert second.happened() == ["granted"]


def test_a_client_that_was_not_registered_by_hand_gets_instructions(second: Setup) -> None:
    with pytest.raises(AssertionError, match="has no dynamic registration: register a client there"):
        second.printed("client.py")


@async_test
async def test_a_short_name_of_a_scope_counts_for_the_long_one_that_clients_ask_for() -> None:
    [block] = [found[1] for found in FILE.finditer(PAGE) if found["name"] == "directory.py"]
    page: dict[str, Any] = {}
    exec(block, page)  # noqa: S102 - our own document
    server: Server = page["directory"]
    server.verifier = StaticTokens(
        {
            "the token with it": Principal(subject="ada", scopes=frozenset({"mail.read"})),
            "the token without it": Principal(subject="ada"),
        }
    )
    server.tool(name="unread")(lambda: 3)
    app = server.asgi()
    async with aclosing(server.engine):
        assert (
            await Peer(app, token="the token with it").sessionless("tools/call", {"name": "unread"}).done()
        ).status == 200
        refused = (
            await Peer(app, token="the token without it").sessionless("tools/call", {"name": "unread"}).done()
        )
        assert refused.status == 403
        assert f'scope="{page["API"]}/mail.read"' in refused.headers["www-authenticate"]
