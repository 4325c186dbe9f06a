"""Questions of a program that does not say to which call they belong: where they are asked, and when they end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from limpet.backs.proxy.back import ProxyBack
from limpet.backs.proxy.options import ProxyOptions
from limpet.config import HttpSettings, Settings, Times
from limpet.core.lifecycle import SessionInput
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.sessions import ANONYMOUS
from limpet.fronts.http.front import HttpFront
from limpet.ports import Ports, SystemRandom
from limpet.testing import NotingObserver
from limpet.upstream.settings import ClientLimits
from tests.asgi import Call, Peer
from tests.backs.piped import Json, Pipe, Program
from tests.duplex import DuplexClient
from tests.messages import metadata, notification
from tests.support import LoopClock, until, virtual_test_within

question_test = virtual_test_within(3_000)


class Front:
    """Limpet in front of a program, and a client over HTTP."""

    def __init__(self, program: Program, settings: Settings, http: HttpSettings) -> None:
        self.program = program
        self.notes = NotingObserver()
        self.back = ProxyBack(program, ProxyOptions(), Ports(LoopClock(), SystemRandom(), self.notes))
        self.engine = Engine(self.back, settings, clock=LoopClock(), observer=self.notes)
        self.peer = Peer(HttpFront(self.engine, http))

    @property
    def pipe(self) -> Pipe:
        return self.program.pipe

    async def start(self, *names: str) -> list[Call]:
        """Begin calls with these names as ids and tools, and wait until the program has them."""
        calls = [self.peer.call(name, name) for name in names]
        await self.pipe.called(*names)
        return calls

    async def cancel(self, name: str) -> None:
        assert (
            await self.peer.post(notification("notifications/cancelled", {"requestId": name})).done()
        ).status == 202

    async def answer(self, question: Json, text: str) -> int:
        """Answer a question that the client has received."""
        result = {"action": "accept", "content": {"text": text}}
        return (
            await self.peer.post({"jsonrpc": "2.0", "id": question["id"], "result": result}).done()
        ).status

    def nothing_is_open(self) -> None:
        """Check that no question is left: here, in the connection to the program, and in the store."""
        for upstream in self.back.upstreams.opened():
            incoming = upstream._connection.incoming
            assert not upstream._questions.open
            assert not incoming._running
            assert not incoming._waiting
            assert incoming._gate.inside == 0
        for session in self.engine.runtime.sessions.values():
            assert (session.pending, session.asking.inside, session.asking.waiting) == ({}, 0, 0)
        stored = self.engine.runtime.store._sessions.values()  # type: ignore[attr-defined]
        assert [session.outstanding for session in stored] == [0] * len(stored)


@asynccontextmanager
async def in_front(
    program: Program | None = None, settings: Settings = Settings(), **http: object
) -> AsyncIterator[Front]:
    """Yield a front; its client has a session and no standalone stream."""
    front = Front(program or Program(), settings, HttpSettings(**http))  # type: ignore[arg-type]
    try:
        await front.peer.initialize()
        yield front
        await asyncio.sleep(0)
        front.nothing_is_open()
    finally:
        await front.engine.aclose()


def questions(call: Call) -> list[str]:
    """Return the texts of the questions that a stream has brought."""
    return [m["params"]["message"] for m in call.messages if m.get("method") == "elicitation/create"]


def cancelled(call: Call) -> list[str]:
    """Return the ids of the asks that a stream has cancelled."""
    return [m["params"]["requestId"] for m in call.messages if m.get("method") == "notifications/cancelled"]


def given(answer: Json) -> object:
    """Return the client's text in a response that the program has received."""
    return answer["result"]["content"]["text"]


# The end of a question


@question_test
async def test_the_questions_of_cancelled_calls_do_not_keep_later_ones_from_the_client() -> None:
    """Two hundred of them: six times as many as the connection to the program handles at once."""
    async with in_front() as front:
        for number in range(200):
            name = f"c{number}"
            [call] = await front.start(name)
            front.pipe.ask(name)
            await call.until(1)
            await front.cancel(name)
            await call.done()
            [asked, told, end] = call.messages
            assert (asked["params"]["message"], cancelled(call)) == (name, [asked["id"]])
            assert (told["method"], end["error"]["code"]) == ("notifications/cancelled", -32800)
            refused = (await front.pipe.answered(name))["error"]
            assert (refused["code"], "has ended" in refused["message"]) == (-32600, True)
            assert await front.answer(asked, "late") == 202
        assert len(front.pipe.cancelled) == 200
        front.nothing_is_open()


@question_test
async def test_a_question_ends_when_the_program_answers_its_call_without_waiting_for_it() -> None:
    async with in_front() as front:
        [call] = await front.start("hurried")
        front.pipe.ask("q")
        await call.until(1)
        front.pipe.finish("hurried")
        await call.done()
        assert cancelled(call) == [call.messages[0]["id"]]
        assert call.messages[-1]["result"]["call"] == "hurried"
        assert "error" in await front.pipe.answered("q")


@question_test
async def test_a_question_ends_with_a_parked_call_and_the_program_takes_calls_in_turn_again() -> None:
    program = Program()
    async with in_front(program, Settings(times=Times(parked=1))) as front:
        await front.peer.delete()
        program.pipes.clear()

        def call(name: str) -> Call:
            meta = metadata(capabilities={"elicitation": {"form": {}}})
            return front.peer.sessionless("tools/call", {"name": name}, meta=meta)

        for number in range(40):
            name = f"c{number}"
            asking = call(name)
            await until(lambda: len(program.pipes) == 1)
            await program.pipe.called(name)
            program.pipe.ask(name)
            assert (await asking.done()).json["result"]["resultType"] == "input_required"
            assert "error" in await program.pipe.answered(name), "the client never comes back"
        front.nothing_is_open()
        first, second = call("first"), call("second")
        await program.pipe.called("first")
        await asyncio.sleep(1)
        assert "second" not in program.pipe.calls
        program.pipe.finish("first")
        await program.pipe.called("second")
        program.pipe.finish("second")
        for one in (first, second):
            assert (await one.done()).status == 200
        assert front.notes.named("upstream.turn_taken") == []


@question_test
async def test_a_question_that_waits_for_its_turn_is_not_asked_in_a_later_call() -> None:
    async with in_front(Program(ClientLimits(incoming=1))) as front:
        [first] = await front.start("first")
        front.pipe.ask("one", "two")
        await first.until(1)
        [second] = await front.start("second")
        await front.cancel("first")
        await first.done()
        assert "error" in await front.pipe.answered("two")
        front.pipe.finish("second")
        assert questions(first) == ["one"]
        assert (await second.done()).json["result"]["call"] == "second"


@question_test
async def test_a_question_whose_calls_end_while_it_waits_for_its_turn_is_not_asked() -> None:
    async with in_front(Program(ClientLimits(incoming=1))) as front:
        standalone = await front.peer.get().begun()
        a, b = await front.start("a", "b")
        front.pipe.ask("one", "two")
        await standalone.until(1)
        for name, call in (("a", a), ("b", b)):
            front.pipe.finish(name)
            await call.done()
        assert "error" in await front.pipe.answered("one")
        assert "error" in await front.pipe.answered("two")
        await standalone.until(2)
        assert cancelled(standalone) == [standalone.messages[0]["id"]]
        assert questions(standalone) == ["one"]
        await standalone.cut()


# Several calls


@question_test
async def test_two_calls_that_ask_at_once_ask_on_their_streams_if_the_client_has_no_other() -> None:
    async with in_front() as front:
        calls = await front.start("a", "b")
        front.pipe.ask("one", "two")
        for call in calls:
            await call.until(1)
        assert [questions(call) for call in calls] == [["one"], ["two"]]
        for call in reversed(calls):
            assert await front.answer(call.messages[0], f"to {questions(call)[0]}") == 202
        assert [given(await front.pipe.answered(name)) for name in ("one", "two")] == ["to one", "to two"]
        for name, call in zip(("a", "b"), calls, strict=True):
            front.pipe.finish(name)
            await call.done()
            assert cancelled(call) == []


@question_test
async def test_with_a_standalone_stream_they_ask_there_and_their_questions_end_with_both() -> None:
    async with in_front() as front:
        standalone = await front.peer.get().begun()
        calls = await front.start("a", "b")
        front.pipe.ask("one", "two")
        await standalone.until(2)
        assert await front.answer(standalone.messages[0], "yes") == 202
        assert given(await front.pipe.answered("one")) == "yes"
        await front.cancel("a")
        await calls[0].done()
        await asyncio.sleep(5)
        assert cancelled(standalone) == [], "it can belong to the other call"
        front.pipe.finish("b")
        await calls[1].done()
        assert "error" in await front.pipe.answered("two")
        await standalone.until(3)
        assert cancelled(standalone) == [standalone.messages[1]["id"]]
        assert [questions(call) for call in calls] == [[], []]
        await standalone.cut()


@pytest.mark.parametrize("how", ["is answered", "is cancelled"])
@question_test
async def test_a_question_moves_to_another_call_if_the_call_with_its_stream_ends_first(how: str) -> None:
    async with in_front() as front:
        a, b = await front.start("a", "b")
        front.pipe.ask("q")
        await a.until(1)
        if how == "is cancelled":
            await front.cancel("a")
        else:
            front.pipe.finish("a")
        await a.done()
        assert cancelled(a) == [a.messages[0]["id"]]
        await b.until(1)
        assert b.messages[0]["id"] != a.messages[0]["id"]
        assert await front.answer(a.messages[0], "to the first") == 202, "late, and dropped"
        assert await front.answer(b.messages[0], "to the second") == 202
        assert given(await front.pipe.answered("q")) == "to the second"
        front.pipe.finish("b")
        await b.done()
        assert questions(b) == ["q"]


@question_test
async def test_a_question_ends_clearly_when_the_last_of_its_calls_ends() -> None:
    async with in_front() as front:
        calls = await front.start("a", "b", "c")
        front.pipe.ask("q")
        await calls[0].until(1)
        [other] = await front.start("began later")
        for name, call in zip(("a", "b", "c"), calls, strict=True):
            await call.until(1)
            await front.cancel(name)
            await call.done()
        assert [questions(call) for call in calls] == [["q"]] * 3
        assert "error" in await front.pipe.answered("q")
        front.pipe.finish("began later")
        assert questions(await other.done()) == []


@question_test
async def test_a_question_stays_where_it_is_when_a_standalone_stream_is_opened_and_moves_there_later() -> (
    None
):
    async with in_front() as front:
        a, b, c = await front.start("a", "b", "c")
        front.pipe.ask("q")
        await a.until(1)
        standalone = await front.peer.get().begun()
        await asyncio.sleep(5)
        assert questions(standalone) == []
        front.pipe.finish("a")
        await standalone.until(1)
        assert await front.answer(standalone.messages[0], "there") == 202
        assert given(await front.pipe.answered("q")) == "there"
        for name, call in (("b", b), ("c", c)):
            front.pipe.finish(name)
            await call.done()
        await asyncio.gather(a.done(), standalone.cut())


@question_test
async def test_a_question_is_asked_in_a_call_whose_client_is_connected() -> None:
    async with in_front() as front:
        a, b = await front.start("a", "b")
        await a.cut()
        front.pipe.ask("q")
        await b.until(1)
        assert await front.answer(b.messages[0], "here") == 202
        assert given(await front.pipe.answered("q")) == "here"
        for name in ("a", "b"):
            front.pipe.finish(name)
        await b.done()


@question_test
async def test_a_question_after_the_answer_of_another_call_belongs_to_the_call_that_is_left() -> None:
    """A program that takes one call after another writes both at once."""
    async with in_front() as front:
        a, b = await front.start("a", "b")
        front.pipe.finish("a")
        front.pipe.ask("q")
        await b.until(1)
        assert "result" in (await a.done()).json, "plain, without a question"
        assert await front.answer(b.messages[0], "mine") == 202
        assert given(await front.pipe.answered("q")) == "mine"
        front.pipe.finish("b")
        await b.done()


@question_test
async def test_on_stdio_the_one_connection_carries_them_and_their_cancellations() -> None:
    async with in_front() as front:
        await front.peer.delete()
        front.program.pipes.clear()
        client = DuplexClient(front.engine, Caller(ANONYMOUS))
        await client.open()
        for number, name in enumerate(("a", "b")):
            await client.say("tools/call", number, name=name, arguments={})
        await front.pipe.called("a", "b")
        front.pipe.ask("q")
        await client.wait_for("elicitation/create")
        [asked] = [m for m in client.received if m.get("method") == "elicitation/create"]
        await client.say("notifications/cancelled", requestId=0)
        front.pipe.finish("b")
        assert (await client.answer(1))["result"]["call"] == "b"
        assert "error" in await front.pipe.answered("q")
        assert [m["requestId"] for m in await client.wait_for("notifications/cancelled")] == [asked["id"]]
        await client.duplex.hang_up(SessionInput.DELETED)


@question_test
async def test_where_answers_are_plain_json_the_program_gets_an_error_at_once() -> None:
    async with in_front(response="json") as front:
        calls = await front.start("a", "b")
        front.pipe.ask("q")
        assert "plain JSON" in (await front.pipe.answered("q"))["error"]["message"]
        for name, call in zip(("a", "b"), calls, strict=True):
            front.pipe.finish(name)
            assert (await call.done()).json["result"]["call"] == name
