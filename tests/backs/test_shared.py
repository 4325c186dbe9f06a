"""Upstreams that several clients share by the operator's choice, and values of clients that keep them apart."""

import asyncio
from typing import Any

import pytest

from limpet import ConfigError, Context, McpError, Process, Server
from limpet.auth import Principal
from limpet.core.lifecycle import SessionInput
from limpet.engine.caller import Caller
from limpet.options import ProxyOptions
from tests.backs.behind import Behind, Front, in_front
from tests.duplex import DuplexClient
from tests.support import async_test, until, virtual_test_within

SHARED = ProxyOptions(shared=True)
URI = "memo://one"


class Counting:
    """A server that counts the subscriptions it receives, and has a tool that asks."""

    def __init__(self) -> None:
        self.server = Server("counting")
        self.subscribed: list[str] = []

        @self.server.middleware
        async def count(request: Any, call_next: Any) -> Any:
            if "subscribe" in request.method:
                self.subscribed.append(request.method.partition("/")[2])
            return await call_next(request)

        @self.server.tool
        async def ask(ctx: Context) -> str:
            """Ask the user."""
            try:
                await ctx.elicit("name?", {"type": "object", "properties": {}})
            except Exception as error:
                return str(error)
            return "asked"

        @self.server.tool
        async def say() -> str:
            """Say a word."""
            return "said"

        @self.server.resource(URI)
        async def memo() -> str:
            """A memo."""
            return "text"


def principal(subject: str, issuer: str = "https://issuer.test", **headers: str) -> Caller:
    named = Principal(subject=subject, issuer=issuer)
    return Caller(named.key, named, {name.replace("_", "-"): value for name, value in headers.items()})


async def opened(front: Front, caller: Caller) -> DuplexClient:
    client = DuplexClient(front.engine, caller)
    await client.open()
    return client


async def called(client: DuplexClient, number: int, name: str = "say") -> str:
    await client.say("tools/call", number, name=name, arguments={})
    text: str = (await client.answer(number))["result"]["content"][0]["text"]
    return text


def updates(client: DuplexClient) -> int:
    return sum(message.get("method", "").endswith("resources/updated") for message in client.received)


@async_test
async def test_sessions_of_one_principal_share_an_upstream_and_other_principals_have_their_own() -> None:
    behind = Behind(Counting().server, "sessions")
    async with in_front(behind, SHARED) as front:
        clients = [await opened(front, principal(name)) for name in ("ada", "ada", "bob")]
        for client in clients:
            assert await called(client, 1) == "said"
        assert len(behind.clients) == 2
        sessionless = DuplexClient(front.engine, principal("ada"))
        await sessionless.sessionless("tools/call", 1, name="say", arguments={})
        assert "result" in await sessionless.answer(1)
        assert len(behind.clients) == 2


@async_test
async def test_only_named_principals_of_one_issuer_share_with_each_other() -> None:
    behind = Behind(Counting().server, "sessions")
    options = ProxyOptions(shared=True, shared_between=("ada", "bob"))
    async with in_front(behind, options) as front:
        for name, issuer, upstreams in (
            ("ada", "https://issuer.test", 1),
            ("bob", "https://issuer.test", 1),
            ("eve", "https://issuer.test", 2),
            ("bob", "https://other.test", 3),
        ):
            assert await called(await opened(front, principal(name, issuer)), 1) == "said"
            assert len(behind.clients) == upstreams, name


@async_test
async def test_anonymous_clients_of_other_machines_share_nothing() -> None:
    behind = Behind(Counting().server, "sessions")
    async with in_front(behind, SHARED) as front:
        front.back.shares_anonymous = False
        for number in (1, 2):
            assert await called(await opened(front, Caller("")), 1) == "said"
            assert len(behind.clients) == number


@async_test
async def test_a_shared_server_may_not_ask_and_no_capability_of_a_client_is_declared_to_it() -> None:
    behind = Behind(Counting().server, "sessions")
    async with (
        in_front(behind, SHARED) as front,
        front.client("sessions", elicitation=lambda _: {}) as client,
    ):
        assert "elicitation" in (await client.call_tool("ask")).text
        [upstream] = front.back._upstreams.opened()
        assert upstream.client.capabilities == {}
        with pytest.raises(McpError, match="may not ask"):
            await upstream._questions.answer("elicitation/create", {}, ())


@async_test
async def test_two_sessions_that_subscribe_to_one_uri_need_one_subscription_and_the_last_one_ends_it() -> (
    None
):
    counting = Counting()
    behind = Behind(counting.server, "sessions")
    async with in_front(behind, SHARED) as front:
        one, two = await opened(front, principal("ada")), await opened(front, principal("ada"))
        for client in (one, two):
            await client.say("resources/subscribe", 1, uri=URI)
        for client in (one, two):
            await client.answer(1)
        assert counting.subscribed == ["subscribe"]
        await counting.server.resource_updated(URI)
        await until(lambda: updates(one) == updates(two) == 1)
        await one.say("resources/unsubscribe", 2, uri=URI)
        await one.answer(2)
        assert counting.subscribed == ["subscribe"]
        await counting.server.resource_updated(URI)
        await until(lambda: updates(two) == 2)
        assert updates(one) == 1
        await two.say("resources/unsubscribe", 2, uri=URI)
        await two.answer(2)
        assert counting.subscribed == ["subscribe", "unsubscribe"]


@virtual_test_within(5_000)
async def test_a_shared_upstream_lives_as_long_as_a_session_of_it_and_a_closed_session_releases_it() -> None:
    counting = Counting()
    behind = Behind(counting.server, "sessions")
    async with in_front(behind, ProxyOptions(shared=True, idle_seconds=100)) as front:
        one, two = await opened(front, principal("ada")), await opened(front, principal("ada"))
        await one.say("resources/subscribe", 1, uri=URI)
        await one.answer(1)
        await asyncio.sleep(300)
        assert behind.living == 1
        await one.duplex.hang_up(SessionInput.DELETED)
        await until(lambda: counting.subscribed == ["subscribe", "unsubscribe"])
        await asyncio.sleep(300)
        assert behind.living == 1
        await two.duplex.hang_up(SessionInput.DELETED)
        await asyncio.sleep(300)
        assert behind.living == 0


@async_test
async def test_a_strict_shared_upstream_that_ends_closes_every_session_of_it() -> None:
    behind = Behind(Counting().server, "sessions")
    async with in_front(behind, ProxyOptions(shared=True, strict=True)) as front:
        for _ in range(2):
            await called(await opened(front, principal("ada")), 1)
        keys = list(front.engine.runtime.sessions)
        assert len(keys) == 2
        await behind.break_links()

        async def are_closed() -> bool:
            return not [key for key in keys if await front.engine.store.find(key, principal("ada").key)]

        await until(are_closed)


@async_test
async def test_clients_whose_values_differ_share_no_upstream() -> None:
    behind = Behind(Counting().server, "sessions")
    async with in_front(behind, SHARED) as front:
        for number, (era, value) in enumerate(
            (
                ("sessions", "a"),
                ("sessionless", "a"),
                ("sessions", "b"),
                ("sessionless", "b"),
                ("sessionless", "c"),
            )
        ):
            client = DuplexClient(front.engine, principal("ada", x_key=value))
            if era == "sessions":
                await client.open()
                await client.say("tools/call", 1, name="say", arguments={})
            else:
                await client.sessionless("tools/call", 1, name="say", arguments={})
            assert "result" in await client.answer(1)
            assert len(behind.clients) == (1, 1, 2, 2, 3)[number]


@async_test
async def test_a_session_keeps_the_upstream_that_the_values_of_its_first_request_chose() -> None:
    behind = Behind(Counting().server, "sessions")
    behind.needs_credentials = True
    async with in_front(behind, SHARED) as front:
        client = await opened(front, principal("ada", x_key="a"))
        client.duplex._caller = principal("ada")
        assert await called(client, 1) == "said"
        assert len(behind.clients) == 1


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs shared=True"):
        Process(["program"], shared_between=["ada"])
    with pytest.raises(ConfigError, match='shared does not fit home="any"'):
        Process(["program"], shared=True, home="any")
    assert Process(["program"], shared=True, shared_between=["ada"]).options.shared_between == ("ada",)
