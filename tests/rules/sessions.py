"""Sessions are opened, found, evicted and closed once; no principal sees another's."""

from limpet.core.lifecycle import SessionInput
from limpet.core.rules.state import ENTRY_BYTES
from limpet.core.stream import Position
from limpet.errors import SessionGone
from limpet.stores.base import STANDALONE_FENCE, Claim, Refusal, WakeUp
from limpet.testing.store.bench import (
    KEY,
    OTHER,
    PRINCIPAL,
    STRANGER,
    Bench,
    Contract,
    reasons,
    record,
    refused,
    scenario,
    tag_of,
)


class SessionRules(Contract):
    """open, find, change, close, subscriptions."""

    @scenario()
    async def test_a_session_is_found_by_its_principal_only(self, bench: Bench) -> None:
        await bench.open()
        found = await bench.store.find(KEY, PRINCIPAL)
        assert found is not None
        assert (found.record, found.returned) == (record(), False)
        assert await bench.store.find(KEY, STRANGER) is None
        assert await bench.store.find(OTHER, PRINCIPAL) is None

    @scenario()
    async def test_a_principals_sessions_are_listed_without_those_of_others(self, bench: Bench) -> None:
        for key, principal in (("1", PRINCIPAL), ("2", STRANGER), ("3", PRINCIPAL), ("4", "")):
            assert await bench.store.open(record(key, principal=principal), evict=False) == []
        assert sorted(await bench.store.sessions()) == ["1", "2", "3", "4"]
        assert sorted(await bench.store.sessions(PRINCIPAL)) == ["1", "3"]
        assert await bench.store.sessions("") == ["4"], "anonymous clients are one principal"
        await bench.store.close("1", SessionInput.DELETED)
        assert await bench.store.sessions(PRINCIPAL) == ["3"]
        assert await bench.store.sessions("unknown") == []

    @scenario()
    async def test_opening_sent_again_changes_nothing(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        assert await bench.store.open(record(), evict=True) == []
        await bench.store.settle(KEY, "a", fence, None)
        assert await bench.store.sessions() == [KEY]

    @scenario()
    async def test_a_change_touches_only_the_named_fields(self, bench: Bench) -> None:
        await bench.open()
        await bench.store.change(KEY, level="debug")
        await bench.store.change(KEY, initialized=True)
        await bench.store.change(OTHER, level="error")
        found = await bench.store.find(KEY, PRINCIPAL)
        assert found is not None
        assert found.record == record(level="debug", initialized=True)

    @scenario()
    async def test_a_session_is_closed_by_one_caller_only(self, bench: Bench) -> None:
        await bench.open()
        closed = await bench.store.close(KEY, SessionInput.DELETED)
        assert closed is not None
        assert (closed.record.key, closed.reason) == (KEY, SessionInput.DELETED)
        assert await bench.store.close(KEY, SessionInput.SHUTDOWN) is None
        assert bench.wakeups.count((WakeUp.CLOSED, KEY, "")) == 1
        assert not await bench.lives()

    @scenario()
    async def test_a_strangers_refusals_are_those_of_a_session_that_never_was(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        await bench.store.ask(KEY, "a.1", "a")
        await bench.store.close((await bench.open("closed")).key, SessionInput.DELETED)
        for key, principal in ((KEY, STRANGER), ("closed", PRINCIPAL), ("unknown", PRINCIPAL)):
            assert await bench.claim(2, "b", key=key, principal=principal) is Refusal.NO_SESSION
            assert await bench.store.attach(key, principal, None, None) is Refusal.NO_SESSION
            assert await bench.store.attach(key, principal, "a", None) is Refusal.NO_SESSION
            assert await bench.store.answer(key, principal, "a.1", b"d", b"{}") is Refusal.NO_SESSION
            assert await bench.store.find(key, principal) is None
            await bench.store.cancel(key, principal, 1)
        assert bench.wakeups == [(WakeUp.CLOSED, "closed", "")]
        # And the session has not changed.
        assert await bench.store.take_answer(KEY, "a.1") == b""
        assert await bench.begin(2, "b") == fence + 1

    @scenario()
    async def test_what_the_server_does_for_a_session_that_is_not_open_is_refused_or_ignored(
        self, bench: Bench
    ) -> None:
        await bench.open("closed")
        fence = await bench.streaming(1, "a", key="closed")
        await bench.store.detach("closed", "a", 0, None, broke=False)
        await bench.store.close("closed", SessionInput.DELETED)
        bench.wakeups.clear()
        store = bench.store
        for key in ("closed", "unknown"):
            for writes in (
                store.settle(key, "a", fence, b"last", tag=7),
                store.settle(key, "a", fence, None),
                store.open_stream(key, "a", fence, 7),
                store.append(key, "a", fence, [(7, b"{}")]),
                store.append(key, "", STANDALONE_FENCE, [(7, b"{}")]),
                store.ask(key, "a.1", "a"),
                store.turn(key, "a", fence),
                store.hold_turn(key, "a", fence),
            ):
                await refused(writes, (SessionGone,))
            await store.change(key, level="debug")
            await store.keep(key, "a", Claim(1, "a", b"body"), b"last", tag=7)
            await store.pass_turn(key, "a", fence)
            await store.withdraw(key, "a.1")
            await store.unsubscribe(key, "u:1")
            assert not await store.subscribe(key, "u:1")
            assert not await store.detach(key, "a", 0, None, broke=True)
            assert await store.close(key, SessionInput.DELETED) is None
            assert await store.read(key, "a", Position(1, tag_of("a", 0)), 9, 9) is None
            assert await store.take_answer(key, "a.1") is None
            assert await store.look(key) is None
        assert (bench.wakeups, await store.sessions()) == ([], [])

    @scenario()
    async def test_a_stranger_does_not_keep_a_session_alive(self, bench: Bench) -> None:
        await bench.open()
        bench.clock.advance(60)
        await bench.claim(1, "a", principal=STRANGER)
        await bench.store.attach(KEY, STRANGER, None, None)
        await bench.store.find(KEY, STRANGER)
        bench.clock.advance(41)
        assert await bench.sweep() == [(KEY, SessionInput.IDLE)]

    @scenario(sessions=2)
    async def test_a_full_store_refuses_and_closing_makes_room(self, bench: Bench) -> None:
        await bench.open("1")
        await bench.open("2")
        assert await bench.store.open(record("3"), evict=False) is Refusal.FULL
        assert sorted(await bench.store.sessions()) == ["1", "2"]
        await bench.store.close("1", SessionInput.DELETED)
        await bench.open("3")

    @scenario(sessions=2)
    async def test_a_full_store_evicts_the_principals_own_idle_session_and_no_others(
        self, bench: Bench
    ) -> None:
        await bench.open("1")
        await bench.open("foreign", STRANGER)
        assert reasons(await bench.store.open(record("2"), evict=True)) == [("1", SessionInput.EVICTED)]
        assert await bench.store.open(record("3", "third"), evict=True) is Refusal.FULL
        assert sorted(await bench.store.sessions()) == ["2", "foreign"]

    @scenario(sessions_per_principal=2)
    async def test_a_principal_at_its_limit_loses_its_longest_idle_session(self, bench: Bench) -> None:
        for key in ("1", "2"):
            assert await bench.store.open(record(key), evict=True) == []
            bench.clock.advance(1)
        await bench.open("foreign", STRANGER)
        await bench.store.find("1", PRINCIPAL)
        bench.clock.advance(1)
        assert reasons(await bench.store.open(record("3"), evict=True)) == [("2", SessionInput.EVICTED)]
        assert sorted(await bench.store.sessions()) == ["1", "3", "foreign"]

    @scenario(sessions_per_principal=2)
    async def test_a_session_with_work_or_a_reader_is_not_evicted(self, bench: Bench) -> None:
        await bench.open("1")
        await bench.open("2")
        await bench.begin(1, "a", key="1")
        await bench.attach(key="2")
        assert await bench.store.open(record("3"), evict=True) is Refusal.FULL
        assert sorted(await bench.store.sessions()) == ["1", "2"]

    @scenario(sessions_per_principal=1)
    async def test_a_principals_only_session_can_be_replaced_again_and_again(self, bench: Bench) -> None:
        await bench.open("0")
        for number in range(1, 4):
            closed = await bench.store.open(record(str(number)), evict=True)
            assert reasons(closed) == [(str(number - 1), SessionInput.EVICTED)]
        assert await bench.store.close("3", SessionInput.DELETED) is not None
        assert await bench.store.sessions() == []

    @scenario(sessions_per_principal=1)
    async def test_anonymous_clients_do_not_evict_each_other(self, bench: Bench) -> None:
        await bench.open("1", "")
        await bench.open("2", "")
        assert sorted(await bench.store.sessions()) == ["1", "2"]

    @scenario(subscriptions=2)
    async def test_subscriptions_count_once_and_have_a_limit(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        assert [await bench.store.subscribe(KEY, uri) for uri in ("u:1", "u:1", "u:2", "u:3")] == [
            True, True, True, False,
        ]  # fmt: skip
        assert await bench.store.subscribe(OTHER, "u:1")
        assert sorted(await bench.store.subscribers("u:1")) == sorted([KEY, OTHER])
        assert await bench.store.subscribers("u:3") == []

    @scenario(subscription_bytes=20)
    async def test_subscriptions_have_a_limit_in_bytes(self, bench: Bench) -> None:
        await bench.open()
        assert not await bench.store.subscribe(KEY, "u:" + "x" * 19)
        assert await bench.store.subscribe(KEY, "u:" + "x" * 10)
        assert not await bench.store.subscribe(KEY, "v:" + "ü" * 4), "bytes count, not characters"
        assert await bench.store.subscribe(KEY, "v:" + "ü" * 3)
        assert await bench.store.subscribe(KEY, "u:" + "x" * 10), "once more is nothing new"
        assert not await bench.store.subscribe(KEY, "w")
        await bench.store.unsubscribe(KEY, "u:" + "x" * 10)
        assert await bench.store.subscribe(KEY, "w:" + "x" * 10)

    @scenario(principal_kept_bytes=3 * ENTRY_BYTES)
    async def test_subscriptions_of_all_sessions_of_a_principal_have_one_total(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        await bench.open("foreign", STRANGER)
        assert await bench.store.subscribe(KEY, "u:1")
        assert await bench.store.subscribe(OTHER, "u:1")
        assert not await bench.store.subscribe(OTHER, "u:2")
        assert await bench.store.subscribe("foreign", "u:2"), "another principal has its own total"
        await bench.store.unsubscribe(KEY, "u:1")
        assert await bench.store.subscribe(OTHER, "u:2"), "a removed entry makes room"
        await bench.store.close(OTHER, SessionInput.DELETED)
        assert [await bench.store.subscribe(KEY, uri) for uri in ("u:1", "u:2", "u:3")] == [True, True, False]

    @scenario(subscriptions=1)
    async def test_a_subscription_ends_by_word_or_with_its_session(self, bench: Bench) -> None:
        await bench.open()
        await bench.store.subscribe(KEY, "u:1")
        await bench.store.unsubscribe(KEY, "u:1")
        await bench.store.unsubscribe(KEY, "u:1")
        assert await bench.store.subscribers("u:1") == []
        assert await bench.store.subscribe(KEY, "u:2")
        await bench.store.close(KEY, SessionInput.DELETED)
        assert await bench.store.subscribers("u:2") == []
        assert not await bench.store.subscribe(KEY, "u:2")

    @scenario()
    async def test_a_closed_store_is_open_again_once_it_is_bound(self, bench: Bench) -> None:
        for _ in range(2):
            await bench.open()
            await bench.begin(1, "a")
            await bench.store.cancel(KEY, PRINCIPAL, 1)
            assert bench.wakeups.count((WakeUp.CANCEL, KEY, "a")) == 1
            await bench.store.close(KEY, SessionInput.DELETED)
            await bench.store.aclose()
            bench.bind()
