"""The accounts of users in a store: who may use a sign-in, and until when."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from limpet.auth.oauth import UserOAuth
from limpet.auth.oauth.challenges import OAuthChallenge
from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.pkce import Begun, new_authorization_request
from limpet.auth.oauth.users import USER_SECONDS
from limpet.auth.oauth.vault import TURN_SECONDS, Vault, WaitingSignIn
from limpet.ports import SystemRandom
from tests.support import LoopClock, virtual_test
from tests.unit.engine.harness import engine_harness

SERVER = "https://behind.example/mcp"
CALLBACK = "https://gateway.example/callback"


@asynccontextmanager
async def kept() -> AsyncIterator[tuple[Any, Vault]]:
    """Yield the state of a store, and a vault in it."""
    async with engine_harness() as made:
        state = made.engine.state
        yield state, Vault(state, None, SERVER, (LoopClock(), SystemRandom()))


def sign_in(clock: LoopClock) -> WaitingSignIn:
    request = new_authorization_request(SystemRandom(), "https://id.example", CALLBACK)
    begun = Begun(request=request, client=ClientIdentity("limpet"), scopes=())
    until = clock.wall() + USER_SECONDS
    return WaitingSignIn(
        server=SERVER, demand=OAuthChallenge("bearer", {}), url="u", begun=begun, until=until
    )


@virtual_test
async def test_a_sign_in_that_its_user_has_not_finished_in_time_makes_room_for_another_one() -> None:
    async with kept() as (_, vault):
        first = await vault.begin("ada", sign_in(LoopClock()))
        await asyncio.sleep(USER_SECONDS - 1)
        assert await vault.begin("ada", sign_in(LoopClock())) == first
        await asyncio.sleep(2)
        assert (await vault.waiting("ada"))[0] is None
        assert await vault.begin("ada", sign_in(LoopClock())) != first


@virtual_test
async def test_a_replica_that_dies_while_it_renews_tokens_loses_its_turn() -> None:
    async with kept() as (_, vault):
        await vault._take_turn("ada")
        began = LoopClock().now()
        async with vault.turn("ada"):
            assert TURN_SECONDS <= LoopClock().now() - began < TURN_SECONDS + 1
        async with vault.turn("ada"):
            assert LoopClock().now() - began < TURN_SECONDS + 1, "it was given back"


@virtual_test
async def test_of_two_replicas_that_get_one_redirect_one_uses_its_code() -> None:
    async with kept() as (state, vault):
        used: list[str] = []
        waiting = await vault.begin("ada", sign_in(LoopClock()))
        read = vault.waiting

        async def read_slowly(principal: str) -> tuple[WaitingSignIn | None, int]:
            found = await read(principal)
            await asyncio.sleep(1)
            return found

        vault.waiting = read_slowly  # type: ignore[method-assign]
        users = [UserOAuth(CALLBACK, ports=(LoopClock(), SystemRandom())) for _ in range(2)]
        for one in users:
            one.keep_in(state, None, SERVER)
            one._vault = vault

            async def finish(waiting: WaitingSignIn, redirect: str) -> None:
                used.append(redirect)

            one.of("ada").finish = finish  # type: ignore[method-assign]
        query = {"state": waiting.begun.request.state, "code": "c"}
        assert sorted(await asyncio.gather(*(one.finish("ada", query) for one in users))) == [False, True]
        assert len(used) == 1
        assert not await users[0].finish("ada", query)
