"""Asks: credit, the first answer, and later answers."""

import asyncio
from collections import Counter

from limpet.core.lifecycle import SessionInput
from limpet.errors import SessionGone
from limpet.stores.base import REMEMBERED_ANSWERS, REMEMBERED_SECONDS, Answered, Refusal, WakeUp
from limpet.testing.store.bench import (
    KEY,
    OTHER,
    PRINCIPAL,
    STRANGER,
    Bench,
    Contract,
    refused,
    scenario,
    tag_of,
)


class AskRules(Contract):
    """ask, answer, take_answer, withdraw."""

    @scenario()
    async def test_the_first_answer_stands_and_wakes_its_asker(self, bench: Bench) -> None:
        await bench.open()
        await bench.begin(1, "a")
        assert await bench.store.ask(KEY, "a.1", "a")
        assert await bench.store.take_answer(KEY, "a.1") == b""
        assert await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d1", b"one") is Answered.FIRST
        assert bench.wakeups == [(WakeUp.ANSWER, KEY, "a.1")]
        assert await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d1", b"one") is Answered.AGAIN
        assert await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d2", b"two") is Answered.CONFLICT
        assert await bench.store.take_answer(KEY, "a.1") == b"one"
        assert await bench.store.take_answer(KEY, "a.1") == b"one"

    @scenario()
    async def test_of_racing_answers_one_is_first(self, bench: Bench) -> None:
        await bench.open()
        await bench.begin(1, "a")
        await bench.store.ask(KEY, "a.1", "a")
        answers = [bench.store.answer(KEY, PRINCIPAL, "a.1", b"%d" % (n % 2), b"{}") for n in range(50)]
        counted = Counter(await asyncio.gather(*answers))
        assert counted == {Answered.FIRST: 1, Answered.AGAIN: 24, Answered.CONFLICT: 25}

    @scenario()
    async def test_an_answer_to_nothing_or_to_another_session_is_unknown(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        await bench.begin(1, "a")
        await bench.store.ask(KEY, "a.1", "a")
        assert await bench.store.answer(KEY, PRINCIPAL, "a.2", b"d", b"{}") is Answered.UNKNOWN
        assert await bench.store.answer(OTHER, PRINCIPAL, "a.1", b"d", b"{}") is Answered.UNKNOWN
        assert await bench.store.take_answer(KEY, "a.1") == b""

    @scenario(asks=2)
    async def test_outstanding_asks_have_a_limit_and_an_answer_frees_a_place(self, bench: Bench) -> None:
        await bench.open()
        await bench.begin(1, "a")
        assert await bench.store.ask(KEY, "a.1", "a")
        assert await bench.store.ask(KEY, "a.1", "a"), "sent again it is the same ask"
        assert await bench.store.ask(KEY, "a.2", "a")
        assert not await bench.store.ask(KEY, "a.3", "a")
        for _ in range(2):
            await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d", b"{}")
        assert await bench.store.ask(KEY, "a.3", "a")
        assert not await bench.store.ask(KEY, "a.4", "a")

    @scenario(asks=1)
    async def test_a_withdrawn_ask_frees_its_place_once_and_a_late_answer_is_unknown(
        self, bench: Bench
    ) -> None:
        await bench.open()
        await bench.begin(1, "a")
        await bench.store.ask(KEY, "a.1", "a")
        for _ in range(2):
            await bench.store.withdraw(KEY, "a.1")
        assert await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d", b"{}") is Answered.UNKNOWN
        assert await bench.store.ask(KEY, "a.2", "a")
        assert not await bench.store.ask(KEY, "a.3", "a")

    @scenario(asks=2)
    async def test_the_asks_of_an_exchange_are_forgotten_with_it(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await bench.begin(2, "b")
        await bench.store.ask(KEY, "a.1", "a")
        await bench.store.ask(KEY, "b.1", "b")
        await bench.store.settle(KEY, "a", fence, None)
        assert await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d", b"{}") is Answered.UNKNOWN
        assert await bench.store.answer(KEY, PRINCIPAL, "b.1", b"d", b"{}") is Answered.FIRST
        assert await bench.store.ask(KEY, "b.2", "b")
        assert await bench.store.ask(KEY, "b.3", "b")

    @scenario(asks=1)
    async def test_an_answer_that_comes_again_after_the_end_is_still_equal_or_another(
        self, bench: Bench
    ) -> None:
        await bench.open()
        for stream, terminal in (("a", None), ("b", b"last")):
            fence = await bench.begin(stream, stream)
            name = f"{stream}.1"
            assert await bench.store.ask(KEY, name, stream)
            assert await bench.store.answer(KEY, PRINCIPAL, name, b"d1", b"one") is Answered.FIRST
            await bench.store.settle(KEY, stream, fence, terminal, tag=tag_of(stream, 1))
            for _ in range(2):
                assert await bench.store.answer(KEY, PRINCIPAL, name, b"d1", b"one") is Answered.AGAIN
                assert await bench.store.answer(KEY, PRINCIPAL, name, b"d2", b"two") is Answered.CONFLICT
            assert await bench.store.take_answer(KEY, name) is None, "only its digest is kept"
        assert await bench.store.answer(KEY, STRANGER, "a.1", b"d1", b"one") is Refusal.NO_SESSION

    @scenario()
    async def test_an_answer_is_still_known_after_its_asker_has_stopped_waiting(self, bench: Bench) -> None:
        await bench.open()
        await bench.begin(1, "a")
        await bench.store.ask(KEY, "a.1", "a")
        await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d1", b"one")
        for _ in range(2):
            await bench.store.withdraw(KEY, "a.1")
        assert await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d1", b"one") is Answered.AGAIN
        assert await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d2", b"two") is Answered.CONFLICT

    @scenario()
    async def test_answers_of_ended_exchanges_are_remembered_for_a_time(self, bench: Bench) -> None:
        await bench.open(idle=10 * REMEMBERED_SECONDS, lifetime=10 * REMEMBERED_SECONDS)
        fence = await bench.begin(1, "a")
        await bench.store.ask(KEY, "a.1", "a")
        await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d1", b"one")
        await bench.store.settle(KEY, "a", fence, None)
        bench.clock.advance(REMEMBERED_SECONDS - 1)
        assert await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d1", b"one") is Answered.AGAIN
        bench.clock.advance(2)
        assert await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d1", b"one") is Answered.UNKNOWN

    @scenario(asks=REMEMBERED_ANSWERS + 1)
    async def test_answers_of_ended_exchanges_are_remembered_up_to_a_number(self, bench: Bench) -> None:
        await bench.open()
        for number in range(REMEMBERED_ANSWERS + 1):
            stream = f"s{number}"
            fence = await bench.begin(number, stream)
            await bench.store.ask(KEY, f"{stream}.1", stream)
            await bench.store.answer(KEY, PRINCIPAL, f"{stream}.1", b"d", b"{}")
            await bench.store.settle(KEY, stream, fence, None)
        found = [
            await bench.store.answer(KEY, PRINCIPAL, f"s{number}.1", b"d", b"{}")
            for number in (0, 1, REMEMBERED_ANSWERS)
        ]
        assert found == [Answered.UNKNOWN, Answered.AGAIN, Answered.AGAIN]

    @scenario(asks=1)
    async def test_an_ask_outside_any_exchange_is_an_ask_like_others(self, bench: Bench) -> None:
        opened = await bench.open()
        for number in range(600):
            name = f"{opened.standalone}.{number}"
            assert await bench.store.ask(KEY, name, opened.standalone)
            assert await bench.store.answer(KEY, PRINCIPAL, name, b"d", b"{}") is Answered.FIRST
            assert await bench.store.take_answer(KEY, name) == b"{}"
            await bench.store.withdraw(KEY, name)
            assert await bench.store.take_answer(KEY, name) is None

    @scenario()
    async def test_an_answer_that_was_not_taken_is_not_dropped_and_the_next_ask_waits(
        self, bench: Bench
    ) -> None:
        opened = await bench.open()
        await bench.begin(1, "a")
        for stream in ("a", opened.standalone):
            for number in range(REMEMBERED_ANSWERS):
                name = f"{stream}.{number}"
                assert await bench.store.ask(KEY, name, stream)
                assert await bench.store.answer(KEY, PRINCIPAL, name, b"d", b"%d" % number) is Answered.FIRST
            assert not await bench.store.ask(KEY, f"{stream}.new", stream), "the stream is full"
            for number in range(REMEMBERED_ANSWERS):
                assert await bench.store.take_answer(KEY, f"{stream}.{number}") == b"%d" % number
            assert not await bench.store.ask(KEY, f"{stream}.new", stream), "the answers are still there"
            await bench.store.withdraw(KEY, f"{stream}.7")
            assert await bench.store.ask(KEY, f"{stream}.new", stream)
            again = await bench.store.answer(KEY, PRINCIPAL, f"{stream}.7", b"d", b"7")
            assert again is Answered.AGAIN, "the digest of a withdrawn answer is still compared"

    @scenario()
    async def test_an_answer_stays_while_many_later_asks_are_answered_and_withdrawn(
        self, bench: Bench
    ) -> None:
        await bench.open()
        await bench.begin(1, "a")
        await bench.store.ask(KEY, "a.first", "a")
        await bench.store.answer(KEY, PRINCIPAL, "a.first", b"d", b"first")
        for number in range(2 * REMEMBERED_ANSWERS):
            name = f"a.{number}"
            assert await bench.store.ask(KEY, name, "a")
            await bench.store.answer(KEY, PRINCIPAL, name, b"d", b"{}")
            await bench.store.withdraw(KEY, name)
        assert await bench.store.take_answer(KEY, "a.first") == b"first"

    @scenario()
    async def test_a_closed_session_cannot_ask_and_has_no_answers(self, bench: Bench) -> None:
        await bench.open()
        await bench.begin(1, "a")
        await bench.store.ask(KEY, "a.1", "a")
        await bench.store.answer(KEY, PRINCIPAL, "a.1", b"d", b"{}")
        await bench.store.close(KEY, SessionInput.DELETED)
        assert await bench.store.take_answer(KEY, "a.1") is None
        await bench.store.withdraw(KEY, "a.1")
        await refused(bench.store.ask(KEY, "a.2", "a"), SessionGone)
