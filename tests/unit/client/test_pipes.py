"""Subscriptions of a client whose server is at the other end of a pipe, where all messages share one channel."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from typing_extensions import override

from limpet.client.base import ClientOptions
from limpet.client.handlers import Handlers
from limpet.client.listening import ListeningClient
from limpet.ports import Ports, SystemRandom
from limpet.testing import NotingObserver, VirtualClock
from limpet.upstream.negotiation import EraMemory
from limpet.upstream.profile import ClientProfile
from limpet.upstream.settings import ClientLimits, ClientTimes
from tests.messages import PREFIX
from tests.support import virtual_test
from tests.unit.upstream.test_connection import Message, Server, User, never

SUBSCRIPTION: Final = f"{PREFIX}subscriptionId"
UPDATED: Final = "notifications/resources/updated"


class Reporting(Server):
    """A server of 2026-07-28 that agrees to `honoured`, or to every subscription."""

    def __init__(self, honoured: dict[str, Any] | None = None) -> None:
        super().__init__(never, is_sessionless=True)
        self.honoured = honoured
        self.subscriptions: list[int] = []

    @override
    async def _take(self, message: Message) -> None:
        if message.get("method") != "subscriptions/listen":
            await super()._take(message)
            return
        self.subscriptions.append(message["id"])
        asked = message["params"]["notifications"]
        self.tell(
            message["id"], "notifications/subscriptions/acknowledged", notifications=self.honoured or asked
        )

    def tell(self, subscription: int, method: str, **params: Any) -> None:
        self.say({"method": method, "params": {**params, "_meta": {SUBSCRIPTION: subscription}}})


@asynccontextmanager
async def listening(*servers: Reporting) -> AsyncIterator[tuple[ListeningClient, NotingObserver]]:
    observer = NotingObserver()
    ports = Ports(VirtualClock(), SystemRandom(), observer)
    profile = ClientProfile({"name": "test", "version": "1"}, {})
    nothing = (Handlers(), profile, "sessionless", EraMemory(), (None, None), True)
    client = ListeningClient(ClientOptions(User(*servers), *nothing, ClientLimits(), ClientTimes(), ports))
    await client._open()
    try:
        yield client, observer
    finally:
        await client.aclose()


@virtual_test
async def test_two_subscriptions_on_one_channel_get_their_own_changes() -> None:
    server = Reporting()
    async with listening(server) as (client, _):
        whole, part = client.listen(resources=["a://x"]), client.listen(resources=["a://x/part"])
        async with whole, part:
            first, second = server.subscriptions
            server.tell(second, UPDATED, uri="a://x/part")
            server.tell(first, UPDATED, uri="a://x")
            assert [(await anext(changes)).uri for changes in (whole, part)] == ["a://x", "a://x/part"]


@virtual_test
async def test_a_subscription_on_a_pipe_is_opened_again_with_the_next_program() -> None:
    server, following = Reporting(), Reporting()
    async with listening(server, following) as (client, _):
        async with client.listen(tools=True) as changes:
            server.exit(1)
            assert (await anext(changes)).missed
            while not following.subscriptions:
                await asyncio.sleep(1)
            following.tell(following.subscriptions[0], "notifications/tools/list_changed")
            while (await anext(changes)).missed:
                """The break is reported by the lost connection and by the lost subscription."""
        assert (len(server.subscriptions), len(following.subscriptions)) == (1, 1)


@virtual_test
async def test_changes_that_the_server_does_not_report_are_named_in_the_log() -> None:
    server = Reporting({"toolsListChanged": True, "resourceSubscriptions": ["a://x"]})
    async with listening(server) as (client, observer):
        async with client.listen(tools=True, resources=["a://x"]):
            assert observer.named("client.listen_reduced") == []
        async with client.listen(tools=True, prompts=True, resources=["a://x", "a://y"]):
            assert observer.named("client.listen_reduced") == [{"missing": "prompts, a://y"}]
