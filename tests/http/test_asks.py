"""Asks are answered side by side, bounded, and never block each other or the receive path."""

import asyncio
from collections.abc import Awaitable, Callable

from limpet.config import Limits, Settings
from limpet.testing.store.limits import tight
from tests.http.back import Config
from tests.http.client import Client, answer_asks, http_test, text
from tests.http.serving import Process, in_loop, process
from tests.messages import Json
from tests.support import BOUND


class Person:
    """Answers asks slowly, the first ones when so many have met, and remembers how many there were at once."""

    def __init__(self, seconds: float, together: int = 1) -> None:
        self._seconds = seconds
        self._together = together
        self._met = asyncio.Event()
        self.now = self.most = 0

    async def __call__(self, ask: Json) -> Json:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now >= self._together:
            self._met.set()
        await self._met.wait()
        # Real time is the subject: more asks could arrive meanwhile.
        await asyncio.sleep(self._seconds)
        self.now -= 1
        if ask["method"] == "elicitation/create":
            return {"action": "accept", "content": {"name": ask["params"]["message"]}}
        asked = ask["params"]["messages"][0]["content"]
        text = (asked[0] if isinstance(asked, list) else asked)["text"]
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": f"re {text}"}}


async def fanned_out(client: Client, n: int, person: Callable[[Json], Awaitable[Json]]) -> str:
    return text(await answer_asks(client, await client.start("fanout", n=n), person))


@http_test
async def test_fifty_asks_are_in_flight_at_once(house: Process) -> None:
    """Trap 45: the receive path waits for no handler."""
    client, person = await Client.opened(house.port), Person(0.0, together=50)
    answers = await fanned_out(client, 50, person)
    assert answers == ",".join(f"re question {number}" for number in range(50))
    assert person.most == 50


@http_test
async def test_with_a_limit_of_eight_asks_there_are_never_more() -> None:
    with process(Config(settings=Settings(limits=Limits(asks=8)))) as running:
        client, person = await Client.opened(running.port), Person(0.05, together=8)
        answers = await fanned_out(client, 50, person)
        assert answers == ",".join(f"re question {number}" for number in range(50))
        assert person.most == 8


@http_test
async def test_asks_beyond_the_queue_are_refused_clearly_and_at_once() -> None:
    async with in_loop(Config(settings=Settings(limits=tight(asks=2, asks_queued=2)))) as served:
        client = await Client.opened(served.port)
        answer = await (await client.start("fanout", n=10)).answer()
        assert answer["error"]["code"] == -32603


@http_test
async def test_a_call_that_waits_for_the_client_is_answered_while_every_slot_is_taken() -> None:
    """Trap 45: answers are control traffic and need no slot."""
    settings = Settings(limits=Limits(running=2, queued=10))
    async with in_loop(Config(settings=settings)) as served:
        client, person = await Client.opened(served.port), Person(0.05)

        async def asked(number: int) -> str:
            response = await client.start("ask", message=f"who {number}")
            return text(await answer_asks(client, response, person))

        names = await asyncio.gather(*(asked(number) for number in range(6)))
        assert [f"who {number}" in name for number, name in enumerate(names)] == [True] * 6


@http_test
async def test_trap_8_two_calls_that_ask_at_once_each_get_their_own_answer(trial: Process) -> None:
    client, person = await Client.opened(trial.port), Person(0.1)

    async def asked(number: int) -> tuple[str, set[str]]:
        ids: set[str] = set()

        async def noting(ask: Json) -> Json:
            ids.add(ask["id"])
            return await person(ask)

        response = await client.start("ask", message=f"name of {number}")
        return text(await answer_asks(client, response, noting)), ids

    answers = await asyncio.gather(*(asked(number) for number in range(30)))
    assert all(f'"name of {number}"' in answer for number, (answer, _) in enumerate(answers))
    assert len(set.union(*(ids for _, ids in answers))) == 30, "every ask has an id of its own"


@http_test
async def test_trap_10_a_client_request_and_an_ask_may_have_the_same_id(trial: Process) -> None:
    client = await Client.opened(trial.port)
    response = await client.start("ask", message="m")
    async for message in response.messages():
        if "method" in message:
            same = await client.start("slow", id=message["id"], seconds=0.3, text="mine")
            assert await client.reply(message, {"action": "decline"}) == 202
            assert text(await same.answer()) == "mine"
        else:
            assert "decline" in text(message)


@http_test
async def test_an_ask_is_answered_after_its_stream_was_cut_and_resumed(house: Process) -> None:
    client, person = await Client.opened(house.port), Person(0)
    response = await client.start("fanout", n=3)
    async for message in response.messages():
        assert message["method"] == "sampling/createMessage"
        assert await client.reply(message, await person(message)) == 202
        break
    response.connection.cut()
    answer = await answer_asks(client, await client.get(response.last_id), person)
    assert text(answer) == "re question 0,re question 1,re question 2"


@http_test
async def test_trap_44_an_ask_that_no_reader_can_see_fails_at_its_deadline_and_reaches_a_late_reader_before(
    trial: Process,
) -> None:
    client = await Client.opened(trial.port)
    assert await client.call("session_ask", timeout=0.2) == "AskTimeout"
    waiting = asyncio.create_task(client.call("session_ask", timeout=BOUND))
    response = await client.get()
    asked = []
    async for message in response.messages():
        if message["method"] == "roots/list":
            asked.append(await client.reply(message, {"roots": []}))
            if len(asked) == 2:
                break
    assert asked == [202, 202], "the answer to the first one is late and dropped"
    assert await waiting == {"roots": []}
