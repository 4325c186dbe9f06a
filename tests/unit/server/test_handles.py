"""State under handles: in both eras, the caller's own, for a time and within limits."""

from limpet import Context, Principal, Server, Settings, Times
from limpet.errors import HandleNotFound, StateError
from limpet.stores.memory import MemoryStore
from limpet.testing.clock import VirtualClock
from limpet.testing.store.limits import tight
from tests.support import async_test
from tests.unit.server.peer import connect
from tests.unit.server.sessionless_client import SessionlessClient, sessionless

LIMITS = tight(handles=4, handles_per_principal=2, state_bytes=100)


async def verifier(token: str) -> Principal | None:
    return Principal(subject=token)


def counting(clock: VirtualClock, *, guarded: bool = True) -> Server:
    settings = Settings(limits=LIMITS, times=Times(handle=100))
    store = MemoryStore(LIMITS, clock)
    server = Server("x", settings=settings, store=store, verifier=verifier if guarded else None)

    @server.tool
    async def begin(ctx: Context, ttl: float | None = None) -> str:
        try:
            return await ctx.new_handle(ttl=ttl)
        except StateError as error:
            return str(error)

    @server.tool
    async def bump(handle: str, ctx: Context) -> int:
        state = await ctx.state_for(handle)
        return await state.incr("n")

    @server.tool
    def bump_plainly(handle: str, ctx: Context) -> int:
        return ctx.sync.state_for(handle).incr("n")

    @server.tool
    async def fill(handle: str, ctx: Context) -> str:
        try:
            await (await ctx.state_for(handle)).set("n", "x" * 200)
        except StateError as error:
            return str(error)
        return "filled"

    return server


@async_test
async def test_state_under_a_handle_is_the_same_in_both_eras() -> None:
    server = counting(VirtualClock(), guarded=False)
    async with sessionless(server) as client:
        peer = await connect(server)
        handle = await client.text("begin")
        assert await client.text("bump", handle=handle) == "1"
        assert await peer.text("bump", handle=handle) == "2"
        assert await client.text("bump_plainly", handle=handle) == "3"
        other = await peer.text("begin")
        assert other != handle
        assert await client.text("bump", handle=other) == "1"


@async_test
async def test_unknown_foreign_and_expired_handles_are_the_same_error() -> None:
    clock = VirtualClock()
    server = counting(clock)
    async with sessionless(server, token="ada") as ada:
        handle = await ada.text("begin")
        answers = {
            await ada.failure("bump", handle=wrong) for wrong in ("", "none", "x" * 1_000, handle + "x")
        }
        answers.add(await SessionlessClient(server, token="bob").failure("bump", handle=handle))
        assert await ada.text("bump", handle=handle) == "1"
        clock.advance(100)
        answers.add(await ada.failure("bump", handle=handle))
        assert answers == {str(HandleNotFound())}


@async_test
async def test_using_a_handle_keeps_it_and_a_handle_may_have_a_time_of_its_own() -> None:
    clock = VirtualClock()
    async with sessionless(counting(clock), token="ada") as ada:
        handle, brief = await ada.text("begin"), await ada.text("begin", ttl=10)
        for number in range(1, 5):
            clock.advance(60)
            assert await ada.text("bump", handle=handle) == str(number)
        assert "not found" in await ada.failure("bump", handle=brief)
        assert "ValueError: ttl=0" in await ada.failure("begin", ttl=0)


@async_test
async def test_handles_and_their_state_are_limited() -> None:
    clock = VirtualClock()
    server = counting(clock)
    async with sessionless(server, token="ada") as ada:
        first = await ada.text("begin")
        assert "limited to 100 bytes" in await ada.text("fill", handle=first)
        await ada.text("begin")
        assert "too many handles" in await ada.text("begin")
        bob, eve = SessionlessClient(server, token="bob"), SessionlessClient(server, token="eve")
        assert len({await bob.text("begin"), await bob.text("begin")}) == 2
        assert "too many handles" in await eve.text("begin")
        clock.advance(100)
        assert await eve.text("bump", handle=await eve.text("begin")) == "1", "an expired handle makes room"
