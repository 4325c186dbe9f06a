"""What one address for several servers keeps, and when it forgets it; and what only one member must get."""

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from limpet import Principal, Server
from limpet.backs.proxy.scopes import ScopeTable
from limpet.backs.proxy.subscriptions import Subscriptions
from limpet.backs.several import lists, presence, routes
from limpet.backs.several.back import SeveralBack
from limpet.backs.several.members import Member
from limpet.backs.several.presence import Presence
from limpet.backs.several.routes import Routes
from limpet.core.ledger import Ledger
from limpet.engine.caller import Caller
from limpet.errors import McpError, SessionGone
from limpet.testing import NotingObserver
from tests.backs.several.parts import PATIENCE, Part, client_of, made_of, server_of
from tests.support import until, virtual_test_within

parts_test = virtual_test_within(3_000)


def back_of(server: Server) -> SeveralBack:
    back = server.back
    assert isinstance(back, SeveralBack)
    return back


def slow_lists(part: Part) -> asyncio.Event:
    """Let the lists of a part wait for an event."""
    go = asyncio.Event()

    async def wait(request: Any, call_next: Any) -> Any:
        if request.method == "tools/list":
            await go.wait()
        return await call_next(request)

    part.middleware(wait)
    return go


@parts_test
async def test_a_session_that_begins_without_a_slow_part_receives_list_changed_when_it_is_there() -> None:
    parts = {"a": Part(server_of("a", "one"), "sessions")}
    parts["a"].place.gate.open.clear()
    heard: list[str] = []

    async def on_notification(method: str, _params: object) -> None:
        heard.append(method)

    async with made_of(parts) as server, client_of(server, "sessions", on_notification=on_notification):
        parts["a"].place.gate.open.set()
        await until(lambda: "notifications/tools/list_changed" in heard)


@parts_test
async def test_a_closed_session_leaves_nothing_behind() -> None:
    parts = {"a": Part(server_of("a", "one")), "b": Part(server_of("b", "one"))}
    parts["a"].place.gate.is_down = True
    async with made_of(parts, prefixed=False) as server:
        async with client_of(server, "sessions") as client:
            assert (await client.call_tool("one")).text == "b.one"
            back = back_of(server)
            assert len(back._presence._sessions) == len(back._routes._clients) == 1
        await until(lambda: not back._presence._sessions)
        assert not back._routes._clients


@parts_test
async def test_a_session_that_is_closed_elsewhere_is_forgotten() -> None:
    attempts = 0

    async def serve(_record: object, _caller: object) -> None:
        nonlocal attempts
        attempts += 1
        raise McpError(0, "down")

    async def confirm_home(key: str) -> bool:
        return key == "open"

    back: Any = SimpleNamespace(serve=serve)
    member = Member("a", back, NotingObserver())
    present = Presence(lambda _key: None)
    ledger = Ledger(2**20)
    account = ledger.account("a")
    looking = asyncio.create_task(present.look_for_sessions(confirm_home))
    for key in ("open", "closed"):
        record: Any = SimpleNamespace(key=key)
        present.begin(
            record, Caller(""), {member: None}, account.take(presence.JOINING_BYTES), is_stored=True
        )
    present.begin(SimpleNamespace(key="refused"), Caller(""), {member: None}, None, is_stored=True)  # type: ignore[arg-type]
    assert "refused" not in present, "there was no memory for its attempts"
    await asyncio.sleep(presence._HOME_SECONDS + 1)
    assert "open" in present
    assert "closed" not in present
    assert ledger.used == presence.JOINING_BYTES
    looking.cancel()
    await present.stop()
    assert ledger.used == 0
    before = attempts
    await asyncio.sleep(600)
    assert attempts == before


@pytest.mark.parametrize("shares", [True, False])
@parts_test
async def test_a_late_page_is_kept_for_a_client_that_can_be_recognised(*, shares: bool) -> None:
    part = Part(server_of("a", "one"))
    go = slow_lists(part)
    async with made_of({"a": part}) as server:
        back_of(server).shares_anonymous = shares
        async with client_of(server, "sessionless") as client:
            assert not await client.list_tools()
            late = back_of(server)._lists._late
            assert bool(late) is shares
            go.set()


@parts_test
async def test_late_pages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "KEPT", 2)
    part = Part(server_of("a", "one"))
    go = slow_lists(part)
    async with made_of({"a": part}) as server, AsyncExitStack() as stack:
        for name in ("ada", "bob", "cyd"):
            client = client_of(server, "sessionless", principal=Principal(subject=name))
            assert not await (await stack.enter_async_context(client)).list_tools()
        kept = back_of(server)._lists._late
        assert [key[0] for key in kept] == [Principal(subject=name).key for name in ("bob", "cyd")]
        go.set()


@parts_test
async def test_the_bytes_of_late_pages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "KEPT_BYTES", 1_500)
    part = Part(server_of("a", "x" * 100, "y" * 100))
    go = slow_lists(part)
    async with made_of({"a": part}) as server, AsyncExitStack() as stack:
        for name in ("ada", "bob", "cyd"):
            client = client_of(server, "sessionless", principal=Principal(subject=name))
            assert not await (await stack.enter_async_context(client)).list_tools()
        kept = back_of(server)._lists._late
        assert len(kept) == 3
        go.set()
        await asyncio.sleep(10)
        assert 0 < len(kept) < 3
        assert sum(len(task.result()) for task in kept.values()) <= 1_500


def test_owners_are_kept_for_a_bounded_number_of_clients_and_the_first_member_wins_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "CLIENTS", 2)
    observer: Any = NotingObserver()
    back: Any = None
    first, second = (Member(name, back, observer) for name in "ab")
    known = Routes([first, second], observer)
    for client in ("1", "2", "3"):
        assert known.claim("tools/list", "tools", "both", second, client)
        assert known.claim("tools/list", "tools", "both", first, client)
        assert not known.claim("tools/list", "tools", "both", second, client)
    owners = [known.known(["tools/list"], "both", client) for client in ("1", "2", "3")]
    assert owners == [None, first, first]


def test_owners_of_ambiguous_names_are_charged_to_their_client_until_it_reads_the_list_again_or_is_forgotten() -> (
    None
):
    ledger, observer, back = Ledger(10_000_000), NotingObserver(), None
    first, second = (Member(name, cast("Any", back), cast("Any", observer)) for name in "ab")
    known, ada = Routes([first, second], cast("Any", observer)), Caller("ada")
    known.charge_for = lambda caller, size: ledger.account(caller.key).take(size)
    for number in range(100):
        known.claim("tools/list", "tools", f"{number:044}", first, "session", ada)
        known.claim("tools/list", "tools", f"{number:044}", second, "session", ada)
    known.claim("prompts/list", "prompts", f"{1:044}", first, "session", ada)
    assert ledger.used == 101 * 236
    known.begin("tools/list", "session")
    assert ledger.used == 236
    known.forget("session")
    assert ledger.used == 0


@parts_test
async def test_a_strict_part_ends_a_session_that_comes_to_another_home() -> None:
    parts = {"a": Part(server_of("a")), "b": Part(server_of("b"), strict=True)}
    async with made_of(parts) as server:
        record: Any = SimpleNamespace(key="a-session")
        with pytest.raises(SessionGone):
            await back_of(server).moved(record)


@parts_test
async def test_a_scope_of_a_part_includes_the_scopes_that_its_table_says() -> None:
    table = ScopeTable(tools={"say": ["talk"]}, implied={"all": ["talk"]})
    ada = Principal(subject="ada", scopes=frozenset({"all"}))
    async with (
        made_of({"a": Part(server_of("a", "say"), scopes=table)}) as server,
        client_of(server, "sessions", principal=ada) as client,
    ):
        assert (await client.call_tool("a_say")).text == "a.say"


def test_a_part_is_subscribed_to_its_own_resources_only(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[str] = []
    add = Subscriptions.add

    async def noted(subscriptions: Subscriptions, uri: str, *others: Any) -> None:
        added.append(uri)
        await add(subscriptions, uri, *others)

    monkeypatch.setattr(Subscriptions, "add", noted)

    @parts_test
    async def run() -> None:
        parts = {name: Part(server_of(name)) for name in "ab"}
        async with (
            made_of(parts) as server,
            client_of(server, "sessionless") as client,
            client.listen(resources=["note://a/a", "note://b/b"]),
        ):
            await until(lambda: len(added) >= 2)

    run()
    assert sorted(added) == ["note://a", "note://b"]


@parts_test
async def test_a_part_that_is_known_to_be_late_is_not_waited_for_to_find_a_resource() -> None:
    now = asyncio.get_running_loop().time
    parts = {"a": Part(server_of("a")), "b": Part(server_of("b"))}
    parts["a"].place.gate.open.clear()
    async with made_of(parts, prefixed=False) as server, client_of(server, "sessions") as client:
        await client.list_resources()
        began = now()
        assert (await client.read_resource("b://bees"))[0].text == "b about bees"
        assert now() - began < PATIENCE
        parts["a"].place.gate.open.set()
