"""The product behind a real nginx with deploy/nginx.conf, which ends TLS under another host name: clients of both eras."""

import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import limpet
from tests.interop.checks import Conversation, ModernConversation, heard, told
from tests.interop.peers import MODERN_PEERS, PEERS, SERVE, Run, over_http, serving
from tests.interop.public_site import NAME, Site
from tests.support import BOUND, async_test, until

PYTHON_WITH_SESSIONS: Final = next(peer for peer in PEERS if str(peer) == "mcp2")
TYPESCRIPT_WITHOUT: Final = next(peer for peer in MODERN_PEERS if peer.name == "ts2")


def options(site: Site) -> tuple[str, ...]:
    """Return the options of the page docs/how-to/ingress.md."""
    return ("--public-url", site.url, "--trusted-proxies", "127.0.0.1")


def over_nginx(peer: Any, directory: Path) -> Run:
    """Let a client talk through nginx and a proxy behind it, which cuts three connections of a session."""
    site = Site.made(directory)

    @contextlib.contextmanager
    def way(port: int) -> Iterator[tuple[str, dict[str, str]]]:
        with site.in_front_of(port):
            yield site.url, site.environment

    return over_http(peer, directory, way, options(site))


class TestSessions(Conversation):
    """The official Python client with a session; its standalone stream and one call are cut."""

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, tmp_path_factory: pytest.TempPathFactory) -> Run:
        return over_nginx(PYTHON_WITH_SESSIONS, tmp_path_factory.mktemp("sessions"))

    def test_every_request_has_the_public_name_and_the_address_of_the_client(self, run: Run) -> None:
        assert {request.headers["host"] for request in run.requests} == {NAME}
        assert {request.headers["x-forwarded-for"] for request in run.requests} == {"127.0.0.1"}

    def test_a_cut_call_is_resumed_and_loses_nothing(self, run: Run) -> None:
        expected = told("step", 6)
        expected.insert(3, expected[2])
        assert heard(run, "cut", expected) == "walked"
        assert run.counts["walk"] == 1

    def test_the_standalone_stream_is_resumed_where_it_was_cut(self, run: Run) -> None:
        first = next(request for request in run.requests if request.method == "GET")
        assert b"cut standalone" in first.answer
        last = first.answer.decode().rpartition("id: ")[2].partition("\n")[0]
        [again] = [request for request in run.requests if request.resumes == last]
        assert b"notifications/resources/updated" in again.answer


class TestWithoutSessions(ModernConversation):
    """The official TypeScript client without a session."""

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, tmp_path_factory: pytest.TempPathFactory) -> Run:
        return over_nginx(TYPESCRIPT_WITHOUT, tmp_path_factory.mktemp("modern"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server behind nginx, known in this process too."""
    directory = tmp_path_factory.mktemp("site")
    found = Site.made(directory)
    with (
        serving(directory, {}, command=[*SERVE, *options(found)]) as port,
        found.in_front_of(port),
        found.known_here(),
    ):
        yield found


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@async_test
async def test_our_client_asks_and_reads_streams_that_are_not_buffered(site: Site, era: str) -> None:
    progress: list[float] = []
    async with limpet.Client(site.url, protocol_version=era, elicitation=_answer) as client:
        walking = asyncio.ensure_future(
            client.call_tool("walk", progress=lambda done, *_: progress.append(done))
        )
        # The tool waits after its first and third step until it is called again: its events cannot be held back.
        for step in (1, 3):
            await until(lambda step=step: progress[-1:] == [step])
            assert not walking.done()
            await client.call_tool("got_it")
        assert (await walking).text == "walked"
        assert progress == [1, 2, 3, 4, 5, 6]
        assert (await client.call_tool("book")).text == "accept: Ada takes 2"


async def _answer(_: Any) -> dict[str, Any]:
    return {"name": "Ada", "seats": 2}


def test_check_finds_no_fault_on_the_way(site: Site) -> None:
    # The page docs/how-to/ingress.md runs all probes.
    chosen = [f"--only={probe}" for probe in ("parallel", "resume", "cuts", "buffering")]
    words = ["check", site.url, "--json", "--tool", "ticks", "--arguments", '{"n": 20}', *chosen]
    done = subprocess.run(
        [sys.executable, "-m", "limpet", *words],
        env={**site.environment, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["passed"]


VERIFIER: Final = """
from limpet import Principal

async def verify(token):
    return Principal(subject="ada") if token == "right" else None

verify.authorization_servers = ["https://login.example.test"]
"""


def test_a_client_that_must_sign_in_finds_the_metadata_under_the_public_name(tmp_path: Path) -> None:
    (tmp_path / "auth.py").write_text(VERIFIER)
    site = Site.made(tmp_path)
    command = [*SERVE, *options(site), "--verifier", f"{tmp_path / 'auth.py'}:verify"]
    with serving(tmp_path, {}, command=command) as port, site.in_front_of(port), site.known_here():
        refused, headers, _ = fetched(site.url, {}, b"{}")
        assert refused == 401
        named = f"https://{NAME}:{site.port}/.well-known/oauth-protected-resource/mcp"
        assert f'resource_metadata="{named}"' in headers["WWW-Authenticate"]
        found, _, body = fetched(named, {})
        assert (found, json.loads(body)["resource"]) == (200, site.url)
        assert fetched(site.url, {"Authorization": "Bearer right", "Host": "other.example"}, b"{}")[0] == 421
        assert fetched(f"{site.url.removesuffix('/mcp')}/readyz", {})[0] == 404, "health is not public"

        @async_test
        async def conversation() -> None:
            async with limpet.Client(site.url, auth="right") as client:
                assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"

        conversation()


def fetched(url: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, Any, bytes]:
    """Return the status, headers and body of a request."""
    types = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, body, {**types, **headers})
    try:
        with urllib.request.urlopen(request, timeout=BOUND) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()
