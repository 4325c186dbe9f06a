"""`Server(state="principal")`: one state for each principal, in both eras and on every replica."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from limpet import Context, Principal, Server, Settings, Times
from limpet.config import HttpSettings
from limpet.errors import ConfigError
from limpet.stores.memory import MemoryStore
from limpet.testing.clock import VirtualClock
from limpet.testing.store.limits import tight
from tests.support import BOUND, async_test
from tests.unit.server.peer import connect, connected, serving
from tests.unit.server.sessionless_client import SessionlessClient, sessionless


async def verifier(token: str) -> Principal | None:
    return Principal(subject=token)


def counting(*, guarded: bool = True, **options: Any) -> Server:
    """Make a server that counts by principal."""
    server = Server("x", **{"state": "principal", "verifier": verifier if guarded else None, **options})

    @server.tool
    async def bump(ctx: Context) -> int:
        return await ctx.state.incr("n")

    @server.tool
    def bump_plainly(ctx: Context) -> int:
        return ctx.sync.state.incr("n")

    @server.tool
    async def all_at_once(ctx: Context) -> int:
        await asyncio.gather(*(ctx.state.incr("many") for _ in range(50)))
        return int(await ctx.state.get("many"))

    @server.tool
    async def fill(ctx: Context, size: int) -> None:
        await ctx.state.set("f", "x" * size)

    return server


@async_test
async def test_a_principal_has_one_state_in_both_eras_and_in_every_session() -> None:
    server = counting()
    async with sessionless(server, token="ada") as client:
        ada, bob = Principal(subject="ada"), Principal(subject="bob")
        peer, again, other = [await connect(server, principal=who) for who in (ada, ada, bob)]
        assert await client.text("bump") == "1"
        assert await peer.text("bump") == "2"
        assert await again.text("bump_plainly") == "3"
        assert await client.text("all_at_once") == "50"
        assert await other.text("bump") == "1"
        assert await SessionlessClient(server, token="bob").text("bump") == "2"


@async_test
async def test_anonymous_clients_of_this_machine_are_one_principal() -> None:
    async with sessionless(counting(guarded=False)) as client:
        peer = await connect(client.server)
        assert [await client.text("bump"), await peer.text("bump")] == ["1", "2"]


@async_test
async def test_a_principals_state_has_its_own_time_and_limits() -> None:
    clock = VirtualClock()
    limits = tight(
        handles=0, handles_per_principal=0, state_bytes=10, principal_states=2, principal_state_bytes=100
    )
    settings = Settings(limits=limits, times=Times(principal_state=100), state="principal")
    server = counting(settings=settings, state=None, store=MemoryStore(limits, clock))
    async with sessionless(server, token="ada") as ada:
        for number in (1, 2, 3):
            assert await ada.text("bump") == str(number)
            clock.advance(99)
        await ada.call("fill", size=50)
        assert "state is limited to 100 bytes" in await ada.failure("fill", size=200)
        assert await SessionlessClient(server, token="bob").text("bump") == "1"
        assert "too many principals have state" in await SessionlessClient(server, token="eve").failure(
            "bump"
        )
        clock.advance(100)
        assert await SessionlessClient(server, token="eve").text("bump") == "1"
        assert await ada.text("bump") == "1", "it was forgotten"


@async_test
async def test_two_replicas_that_use_it_first_at_once_use_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    one, two = counting(store=url), counting(store=url)
    async with serving(one), serving(two):
        for who in ("ada", "bob", "eve"):
            clients = [SessionlessClient(server, token=who) for server in (one, two) for _ in range(5)]
            texts = await asyncio.gather(*(client.text("bump") for client in clients))
            assert sorted(map(int, texts)) == list(range(1, 11))


@async_test
async def test_by_default_state_is_the_sessions() -> None:
    async with connected(counting(state=None, verifier=None)) as peer:
        other = await connect(peer.server)
        assert [await peer.text("bump"), await other.text("bump")] == ["1", "1"]
        failure = await SessionlessClient(peer.server).failure("bump")
        assert 'Server(state="principal")' in failure


@pytest.mark.parametrize(
    "http",
    [
        {"allow_anonymous": True},
        {"allowed_hosts": ("localhost", "mcp.example.com")},
        {"allowed_hosts": ("*",)},
    ],
)
@async_test
async def test_strangers_never_share_a_state(http: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="needs a verifier"):
        counting(guarded=False).front(HttpSettings(**http))
    for server in (counting(), counting(guarded=False, state="session")):
        server.front(HttpSettings(**http))
    counting(guarded=False).front(HttpSettings())


def test_a_server_that_strangers_would_share_does_not_start(tmp_path: Path) -> None:
    program = tmp_path / "shared.py"
    program.write_text("from limpet import Server\nserver = Server('x', state='principal')\n")
    options = ("--http", "0.0.0.0:0", "--allow-anonymous", "--allow-host", "*")
    told = subprocess.run(
        [sys.executable, "-m", "limpet", "serve", str(program), *options],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert told.returncode == 2
    assert told.stderr.startswith('limpet: state="principal" needs a verifier')


def test_state_is_a_sessions_or_a_principals() -> None:
    with pytest.raises(ConfigError, match="state='user': choose session, principal"):
        Server("x", state="user")  # type: ignore[arg-type]
