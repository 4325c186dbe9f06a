"""Conversations without a session: the key that a request names, with its principal, chooses state, upstream and home."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from limpet import Context, Server
from limpet.auth import Principal
from limpet.config import Limits, Settings, Times
from limpet.engine.exchange import Exchange
from limpet.errors import ConfigError
from limpet.protocol.idempotency import KEY
from tests.asgi import Call, Peer
from tests.messages import metadata
from tests.support import async_test, until
from tests.unit.fronts.http.bench import Bench, front_test
from tests.unit.fronts.http.test_deleted import replicas

LONG = "0123456789abcdefghijkl"
TIMES = Times(lease=10, lease_renewal=3, stream_age=(1e5, 2e5))


async def verifier(token: str) -> Principal | None:
    return Principal(subject=token)


def counting(
    affinity: str, limits: Limits | None = None, times: Times | None = None, **options: Any
) -> Server:
    settings = Settings(
        affinity=affinity, state="conversation", limits=limits or Limits(), times=times or Times()
    )
    server = Server("kept", settings=settings, **options)

    @server.tool
    async def count(ctx: Context, session_id: str = "") -> int:
        return await ctx.state.incr("n")

    return server


async def value(call: Call) -> Any:
    answer = (await call.done()).json
    return answer["result"]["structuredContent"]["result"] if "result" in answer else answer["error"]["code"]


def count(peer: Peer, name: str = "", place: str = "argument:session_id") -> Call:
    """Call in a conversation that is named in this place."""
    kind, _, at = place.partition(":")
    params: dict[str, Any] = {"name": "count", "arguments": {}}
    meta, headers = metadata(), dict[str, str]()
    if name and kind == "argument":
        params["arguments"] = {at: name}
    elif name and kind == "meta":
        meta[at] = name
    elif name and kind == "baggage":
        meta["baggage"] = f"other=1, {at}={name.replace(' ', '%20')};property"
    elif name:
        headers[at.lower()] = name
    return peer.sessionless("tools/call", params, meta=meta, headers=headers)


@pytest.mark.parametrize(
    ("affinity", "place"),
    [
        ("argument:session_id", "argument:session_id"),
        ("header:X-Conversation-Id", "header:X-Conversation-Id"),
        ("meta:gen_ai.conversation.id", "meta:gen_ai.conversation.id"),
        ("meta:gen_ai.conversation.id", "baggage:gen_ai.conversation.id"),
    ],
)
@async_test
async def test_the_state_belongs_to_the_conversation_of_a_principal(affinity: str, place: str) -> None:
    server = counting(affinity, verifier=verifier)
    app = server.asgi(response="json")
    alice, bob = (Peer(app, token=token) for token in ("alice", "bob"))
    said = [(alice, "a b"), (alice, "a b"), (alice, "other"), (bob, "a b"), (alice, "a b")]
    async with aclosing(server.engine):
        assert [await value(count(peer, name, place)) for peer, name in said] == [1, 2, 1, 1, 3]
        nameless = (await count(alice).done()).json["result"]
        assert nameless["isError"], "a request that names no conversation has no state"


@async_test
async def test_in_a_session_the_conversation_is_the_session_and_without_the_setting_nothing_changes() -> None:
    server = counting("argument:session_id")
    peer = Peer(server.asgi(response="json"))
    async with aclosing(server.engine):
        await peer.initialize()
        for number in (1, 2):
            params = {"name": "count", "arguments": {"session_id": str(number)}}
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            assert await value(peer.post(message)) == number


@async_test
async def test_an_anonymous_client_of_another_machine_names_a_conversation_that_cannot_be_guessed() -> None:
    server = counting("argument:session_id")
    peer = Peer(server.asgi(response="json", allow_anonymous=True), client="192.0.2.1")
    async with aclosing(server.engine):
        refused = await count(peer, LONG[:-1]).done()
        assert (refused.status, refused.json["error"]["code"]) == (400, -32602)
        assert [await value(count(peer, LONG)) for _ in range(2)] == [1, 2]
        too_long = await count(peer, "x" * 256).done()
        assert (too_long.status, too_long.json["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize("setting", ["X-Conversation", "cookie:x", "header:", "header:a b"])
def test_another_place_is_refused_and_so_is_state_of_conversations_without_one(setting: str) -> None:
    with pytest.raises(ConfigError, match="affinity"):
        Settings(affinity=setting)
    with pytest.raises(ConfigError, match="affinity"):
        Settings(state="conversation")


async def homed(one: Bench, home: list[str], name: str) -> None:
    """Let the tool of a replica note that the call ran there."""

    async def note(exchange: Exchange) -> object:
        assert exchange.caller.conversation
        home.append(name)
        return {"at": name}

    one.back.has_home = True
    one.back.on("tools/call")(note)


@front_test
async def test_the_calls_of_a_conversation_run_at_its_home_and_after_its_death_at_another_replica() -> None:
    async with replicas(2, times=TIMES, affinity="argument:session_id") as (one, two):
        home: list[str] = []
        await homed(one, home, "one")
        await homed(two, home, "two")
        for bench in (one, two, one):
            call = await count(bench.peer(), "a").done()
            assert (call.messages[-1] if call.is_stream else call.json)["result"] == {"at": "one"}
        await count(two.peer(), "b").done()
        await count(one.peer(), "b").done()
        assert home == ["one", "one", "one", "two", "two"]
        # As after kill -9: it renews no lease, receives no wake-up and answers nothing.
        assert one.engine.replica._keeper is not None
        one.engine.replica._keeper.stop()
        one.store.bind(lambda *_: None)
        await two.store.renew(TIMES.lease)
        await one.store.release()
        await asyncio.sleep(30)
        await count(two.peer(), "a").done()
        assert home[5:] == ["two"]


@pytest.mark.parametrize("key", ["", "order-7"])
@front_test
async def test_a_conversation_whose_home_is_stopping_goes_on_at_another_replica(key: str) -> None:
    async with replicas(2, times=TIMES, affinity="argument:session_id") as (one, two):
        home: list[str] = []
        await homed(one, home, "one")
        await homed(two, home, "two")

        async def ask(number: int) -> None:
            meta = {**metadata(), KEY: f"{key}-{number}"} if key else metadata()
            params = {"name": "count", "arguments": {"session_id": "a"}}
            call = await two.peer().sessionless("tools/call", params, meta=meta).done()
            assert call.received[-1].get("result") == {"at": home[-1]}, call.received

        await count(one.peer(), "a").done()
        await ask(1)
        one.engine.draining = True
        await ask(2)
        await ask(3)
        assert home == ["one", "one", "two", "two"]


@async_test
async def test_a_conversation_is_in_the_memory_of_its_client_until_it_ends() -> None:
    """A client that names another conversation in each request could open all that the store takes."""
    limits, times = Limits(memory=2**18), Times(idle=0.3, sweep=0.05)
    server = counting("argument:session_id", verifier=verifier, limits=limits, times=times)
    async with aclosing(server.engine):
        peer = Peer(server.asgi(response="json"), token="alice")
        calls = [await count(peer, str(number)).done() for number in range(60)]
        opened = [call.status for call in calls].count(200)
        assert 5 < opened < 2**17 // 4_096
        await until(lambda: not server.engine.runtime.hidden)
        assert await value(count(peer, "another")) == 1
