"""`--workers`: several processes on one socket, without a word about a store."""

import asyncio
import os
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

import limpet
from tests.http.client import Connection, Response, http_test, value
from tests.messages import LATEST, Json
from tests.support import async_test, until, wait_until
from tests.workers.fleet import Anywhere, Fleet, Journey, at_every, fleet, increments, lives
from tests.workers.shop import LEASE
from tools.ports import free_port


@pytest.fixture(scope="module")
def three() -> Iterator[Fleet]:
    with fleet("--workers", "3") as running:
        yield running


@pytest.fixture(scope="module")
def pair() -> Iterator[Fleet]:
    """Two workers, for tests that do nothing to them but have them replaced."""
    with fleet("--workers", "2", "--log-level", "warning") as running:
        yield running


@http_test
async def test_twenty_clients_count_to_a_thousand_over_three_workers(three: Fleet) -> None:
    client = await at_every((three.port,))
    clients = [client, *(Anywhere(three.port) for _ in range(19))]
    for other in clients[1:]:
        other.session_id, other.numbers, other.ports = client.session_id, client.numbers, client.ports
    await asyncio.gather(*(increments(each, 50) for each in clients))
    assert await client.call("counted") == 1_000


@http_test
async def test_a_session_is_served_by_any_process_that_accepts_the_connection(three: Fleet) -> None:
    client = await at_every((three.port,))
    served: set[int] = set()
    while len(served) < 3:
        served.update(await asyncio.gather(*(client.call("who") for _ in range(10))))
    assert served == set(three.workers())


@http_test
async def test_an_answer_may_come_to_another_worker_than_the_one_that_asked(three: Fleet) -> None:
    client = await at_every((three.port,))
    for _ in range(5):
        response = await client.start("ask")
        async for message in response.messages():
            if message.get("method") == "sampling/createMessage":
                content = {"type": "text", "text": "me"}
                status = await client.reply(message, {"role": "assistant", "content": content, "model": "m"})
                assert status == 202
            elif "result" in message:
                assert message["result"]["structuredContent"]["result"] == "m"
        response.connection.cut()


def test_a_store_that_was_not_named_is_private(three: Fleet) -> None:
    (home,) = three.home.iterdir()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()} == {0o600}


def test_the_banner_is_shown_once(three: Fleet) -> None:
    assert three.output().count("Ctrl+C stops") == 1
    assert "3 workers" in three.output()


@http_test
async def test_a_killed_workers_calls_end_with_one_error_and_no_other_is_touched(tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    with fleet("--workers", "3") as running:
        client = await at_every((running.port,))
        journeys: list[Journey] = []
        tasks: list[asyncio.Task[Json]] = []
        while len({journey.runner for journey in journeys}) < 2:
            # A free worker takes the next connection: on a busy machine one worker may take them all.
            journeys.extend(Journey(client, "steps_until", file=str(enough)) for _ in range(8))
            tasks.extend(asyncio.create_task(journey.run()) for journey in journeys[-8:])
            await until(lambda: all(journey.runner for journey in journeys))
        victim = journeys[-1].runner
        os.kill(victim, signal.SIGKILL)
        lost = [await task for journey, task in zip(journeys, tasks, strict=True) if journey.runner == victim]
        assert all(answer["code"] == -31002 for answer in lost)
        assert sum(task.done() for task in tasks) == len(lost), "the others continue"
        enough.touch()
        answers = await asyncio.gather(*tasks)
        assert victim not in answers
        assert 0 < len(lost) < len(answers), "the victim had some of the calls, and not all"
        for journey, answer in zip(journeys, answers, strict=True):
            assert journey.progress == list(range(1, len(journey.progress) + 1))
            assert answer in lost or answer == journey.runner
        await until(lambda: len(running.workers()) == 3 and victim not in running.workers())
        assert f"(pid {victim}) was killed by SIGKILL" in running.output()


@http_test
async def test_the_calls_of_a_dead_worker_end_within_the_lease_and_two_seconds() -> None:
    with fleet("--workers", "2") as running:
        client = await at_every((running.port,))
        journey = Journey(client, "steps", n=400, seconds=0.1)
        task = asyncio.create_task(journey.run())
        await until(lambda: bool(journey.runner))
        killed_at = time.monotonic()
        os.kill(journey.runner, signal.SIGKILL)
        assert (await task)["code"] == -31002
        assert time.monotonic() - killed_at < LEASE + 2 + 20, "the lease and two seconds, and a busy machine"


@http_test
async def test_replacing_every_worker_loses_no_running_call(pair: Fleet, tmp_path: Path) -> None:
    before = pair.workers()
    client = await at_every((pair.port,))
    enough = tmp_path / "enough"
    journeys = [Journey(client, "steps_until", file=str(enough)) for _ in range(12)]
    tasks = [asyncio.create_task(journey.run()) for journey in journeys]
    counting = asyncio.create_task(_count_on(client))
    await until(lambda: all(journey.messages for journey in journeys))
    replaced = _replace(pair)
    # Streams are handed over while their calls continue where they began.
    await until(lambda: any(journey.resumed for journey in journeys))
    enough.touch()
    await until(replaced)
    counting.cancel()
    assert set(await asyncio.gather(*tasks)) <= set(before), "they were finished where they had begun"
    for journey in journeys:
        assert journey.progress == list(range(1, len(journey.messages)))
    after = pair.workers()
    assert len(after) == 2
    assert not set(after) & set(before)


def _replace(running: Fleet) -> Callable[[], bool]:
    """Have every worker replaced; returns a function that tells whether they were."""
    done = "every worker was replaced"
    before = running.output().count(done)
    running.tell(signal.SIGHUP)
    return lambda: running.output().count(done) > before


async def _count_on(client: Anywhere) -> None:
    """Send short calls all the while: each is answered, wherever it lands."""
    while True:
        assert await Journey(client, "who").run() > 0


async def _refusal(client: Anywhere) -> Response:
    """Send new calls until one is refused: the workers begin to stop one after the other."""
    while (response := await client.start("steps", n=1, seconds=0)).status == 200:
        await response.answer()
    return response


@http_test
async def test_a_stop_lets_running_calls_finish_and_is_a_good_end() -> None:
    with fleet("--workers", "2") as running:
        workers = running.workers()
        # No worker stays, so no stream is handed over: all are served to their end.
        clients = [await Anywhere.opened(running.port, version=version) for version in ("2025-06-18", LATEST)]
        journeys = [Journey(client, "steps", n=15, seconds=0.2) for client in clients for _ in range(3)]
        tasks = [asyncio.create_task(journey.run()) for journey in journeys]
        await until(lambda: all(journey.messages for journey in journeys))
        running.tell(signal.SIGTERM)
        await until(lambda: "Stopping:" in running.output())
        # New connections are accepted, for what begins no work.
        assert (
            "result"
            in await (await clients[0].post({"jsonrpc": "2.0", "id": "p", "method": "ping"})).answer()
        )
        refused = await _refusal(clients[1])
        assert (refused.status, refused.headers["limpet-refused"]) == (503, "not-executed")
        assert set(await asyncio.gather(*tasks)) <= set(workers)
        assert not any(journey.resumed for journey in journeys)
        await until(lambda: running.popen.poll() is not None)
        assert running.popen.returncode == 0
        assert not any(map(lives, workers))
        assert "Traceback" not in running.output()


@http_test
async def test_clients_that_keep_their_connections_are_never_refused_while_workers_are_replaced(
    pair: Fleet,
) -> None:
    client = await at_every((pair.port,))
    before, served, done = set(pair.workers()), set[int](), asyncio.Event()
    begun = set[Connection]()

    async def chat() -> int:
        moves = 0
        connection = await Connection.open(pair.port)
        while not done.is_set():
            response = await client.start("who", on=connection)
            assert response.status == 200
            served.add(value(await response.answer()))
            begun.add(connection)
            if response.headers.get("connection") == "close":
                moves += 1
                connection.cut()
                connection = await Connection.open(pair.port)
        return moves

    chats = [asyncio.create_task(chat()) for _ in range(6)]
    await until(lambda: len(begun) == 6)
    await until(_replace(pair))
    done.set()
    assert min(await asyncio.gather(*chats)) >= 1, "each received a notice to open another connection"
    assert served - before <= set(pair.workers())
    assert served - before


@pytest.mark.parametrize("era", ["sessionless", "sessions"])
@async_test
async def test_no_call_of_our_own_client_fails_in_a_rolling_restart(
    pair: Fleet, era: Literal["sessionless", "sessions"]
) -> None:
    before = set(pair.workers())
    async with limpet.Client(f"http://127.0.0.1:{pair.port}/mcp", protocol_version=era) as client:
        progress: list[float] = []
        long = asyncio.create_task(
            client.call_tool(
                "steps", {"n": 30, "seconds": 0.1}, progress=lambda done, *_: progress.append(done)
            )
        )
        await until(lambda: bool(progress))
        replaced = _replace(pair)
        served = set[int]()
        while not replaced():
            served.add((await client.call_tool("who", {})).data)
        served.add((await client.call_tool("who", {})).data)
        assert (await long).data in before
        assert progress == list(range(1, 31))
        assert served - before


@http_test
async def test_ctrl_c_in_a_terminal_drains_and_a_second_one_stops_waiting() -> None:
    with fleet("--workers", "2", env={"SHOP_DRAIN": "100"}) as running:
        client = await Anywhere.opened(running.port, version="2025-06-18")
        journey = Journey(client, "steps", n=100_000, seconds=0.05)
        task = asyncio.create_task(journey.run())
        await until(lambda: bool(journey.runner))
        running.press_ctrl_c()
        # Both orders of the signals occur: the terminal's is first, or that of the parent.
        os.kill(journey.runner, signal.SIGINT)
        told = len(journey.messages)
        await until(lambda: len(journey.messages) > told + 20, explain=lambda: str(journey.messages[-1]))
        assert running.popen.poll() is None, "it waits for the running calls"
        running.press_ctrl_c()
        await until(lambda: running.popen.poll() is not None, 60)  # the drain time is 100 s
        assert "Traceback" not in running.output()
        task.cancel()


@http_test
async def test_a_session_in_a_file_outlives_a_killed_process_and_its_calls_end_with_one_error(
    tmp_path: Path,
) -> None:
    options = ("--store", f"sqlite:///{tmp_path}/store.db")
    address = f"127.0.0.1:{free_port()}"
    with fleet(*options, http=address) as first:
        client = await at_every((first.port,))
        assert await client.call("bump") == 1
        journey = Journey(client, "steps", n=400, seconds=0.1)
        task = asyncio.create_task(journey.run())
        await until(lambda: len(journey.messages) > 2)
        first.popen.kill()
        first.popen.wait()
    with fleet(*options, http=address):
        assert (await task)["code"] == -31002
        assert journey.progress == list(range(1, len(journey.messages)))
        assert await client.call("bump") == 2


def test_no_worker_outlives_a_parent_that_was_killed() -> None:
    with fleet("--workers", "2") as running:
        workers = running.workers()
        assert len(workers) == 2
        running.popen.kill()
        running.popen.wait()
        wait_until(lambda: not any(map(lives, workers)))


@http_test
async def test_a_worker_that_keeps_dying_is_started_ever_later() -> None:
    with fleet("--workers", "2") as running:
        client = await at_every((running.port,))
        # A loaded machine lets a worker live for long now and then, and it counts as steady.
        while "another starts in 0.2 s" not in running.output():
            alive = set(running.workers())
            with socket.create_connection(("127.0.0.1", running.port)):
                response = asyncio.create_task(client.call("die"))
                await until(lambda alive=alive: set(running.workers()) != alive)
                response.cancel()
            await until(lambda: len(running.workers()) == 2)
        assert running.output().count("ended with status 7") >= 2
        assert "another starts in 0.1 s" in running.output()


def test_a_replacement_that_starts_while_all_workers_are_replaced_leaves_no_extra_worker(pair: Fleet) -> None:
    old = pair.workers()
    os.kill(old[0], signal.SIGKILL)
    wait_until(lambda: bool(set(pair.workers()) - set(old)))
    # The replacement starts, and has not reported yet.
    replaced = pair.output().count("every worker was replaced")
    pair.tell(signal.SIGHUP)
    wait_until(lambda: pair.output().count("every worker was replaced") > replaced)
    wait_until(lambda: len(pair.workers()) == 2)
    assert not set(pair.workers()) & set(old)
