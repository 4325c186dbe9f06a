"""`--in-order` over real processes: one call of a session at a time, at every process and after every kind of end."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.client import Client, call, http_test, value
from tests.messages import Json
from tests.redis_server import needs_redis, redis_server
from tests.support import stays, until
from tests.workers.fleet import Fleet, fleet


@pytest.fixture(scope="module", params=["sqlite", pytest.param("redis", marks=needs_redis)])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Fleet]]:
    """Two processes over one store."""
    with contextlib.ExitStack() as stack:
        if request.param == "redis":
            store = stack.enter_context(redis_server()).url
        else:
            store = f"sqlite:///{tmp_path_factory.mktemp('in_order') / 'store.db'}"
        env = {"LIMPET_STORE": store}
        yield [stack.enter_context(fleet("--in-order", env=env)) for _ in range(2)]


async def at(client: Client, port: int, body: Json) -> Json:
    """Send a request of the client's session to one of the processes; return its answer."""
    there = Client(port)
    there.session_id = client.session_id
    return await (await there.post(body)).answer()


@http_test
async def test_calls_of_one_session_at_two_processes_never_overlap(two: list[Fleet], tmp_path: Path) -> None:
    client = await Client.opened(two[0].port)
    file = tmp_path / "notes"
    (tmp_path / "end").touch()
    bodies = [call(number, "alone", file=str(file), end=str(tmp_path / "end")) for number in range(8)]
    answers = await asyncio.gather(
        *(at(client, two[number % 2].port, body) for number, body in enumerate(bodies))
    )
    assert len({value(answer) for answer in answers}) == 2, "both processes had a part"
    assert file.read_text().split() == ["begin", "end"] * 8


@pytest.mark.parametrize("tool", ["alone", "alone_and_tidy"])
@http_test
async def test_a_cancelled_call_keeps_its_turn_until_its_function_has_ended(
    two: list[Fleet], tmp_path: Path, tool: str
) -> None:
    file, end = tmp_path / "notes", tmp_path / "end"
    arguments = {"file": str(file), "end": str(end)}
    client = await Client.opened(two[0].port)
    first = asyncio.ensure_future(at(client, two[0].port, call(1, tool, **arguments)))
    await until(file.exists)
    await client.tell("notifications/cancelled", {"requestId": 1})
    assert (await first)["error"]["code"] == -32800
    assert file.read_text().split() == ["begin"], "the answer does not wait for the function"
    following = [
        asyncio.ensure_future(at(client, process.port, call(number, "alone", **arguments)))
        for number, process in enumerate(two, 2)
    ]
    await stays(lambda: file.read_text().split() == ["begin"], 0.5)
    end.touch()
    await asyncio.gather(*following)
    assert file.read_text().split() == ["begin", "end"] * 3
