"""Two releases on one SQLite file, also side by side: each continues the work of the other."""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limpet.errors import REQUEST_CANCELLED
from tests.http.client import Client, Connection, call, http_test, text
from tests.sqlite.support import store_path
from tests.support import until
from tests.workers.fleet import Fleet, fleet
from tests.workers.tasks import begun
from tests.workers.tasks import ended as task_ended


@contextlib.contextmanager
def serving(store: Path, code: Path | None = None) -> Iterator[Fleet]:
    """Serve the shop from a file, with this commit's code or a tree's."""
    paths = os.environ.get("PYTHONPATH", "") if code is None else str(code / "src")
    with fleet("--store", f"sqlite:///{store}", env={"PYTHONPATH": paths}) as running:
        yield running


class Shopper(Client):
    """One session, used at several processes."""

    def at(self, process: Fleet) -> "Shopper":
        self.port = process.port
        return self

    async def cut_after(self, events: int, body: bytes) -> tuple[str, list[int]]:
        """Begin a call and lose its connection; return where to resume, and the progress that was seen."""
        response = await self.post(body)
        seen: list[int] = []
        async for event in response.events():
            if event.data:
                seen.append(event.message["params"]["progress"])
            if len(seen) == events:
                break
        response.connection.cut()
        return response.last_id, seen

    async def rest(self, last_id: str) -> tuple[list[int], Any]:
        """Resume a call; return the progress that was still to come, and its answer."""
        messages = [message async for message in (await self.get(last_id)).messages()]
        return [message["params"]["progress"] for message in messages[:-1]], messages[-1]

    async def lost(self, end: Path) -> bytes:
        """Send a request and be gone before its answer, which comes when there is the file `end`; return the request."""
        body = json.dumps(call(next(self.numbers), "held", file=str(end))).encode()
        connection = await Connection.open(self.port)
        sending = asyncio.create_task(self.post(body, on=connection))
        await until(Path(f"{end}.begun").exists)
        connection.cut()
        await asyncio.gather(sending, return_exceptions=True)
        return body

    async def again(self, body: bytes) -> int:
        """Repeat a request until the server knows that its first connection is gone; return the process that ran it."""
        while (response := await self.post(body)).status == 400:
            await asyncio.sleep(0.02)
        return int(text(await response.answer()))


async def ended(process: Fleet) -> None:
    """Let a process drain and end."""
    await Connection.cut_all()
    assert await asyncio.to_thread(process.end) == 0


def steps(number: int, n: int) -> bytes:
    return json.dumps(call(number, "steps", n=n, seconds=0.1)).encode()


async def exchanged(shopper: Shopper, one: Fleet, two: Fleet, end: Path) -> None:
    """See a call that runs at one process read live, answered and repeated at the other."""
    last_id, seen = await shopper.at(one).cut_after(2, steps(next(shopper.numbers), 5))
    more, answer = await shopper.at(two).rest(last_id)
    assert (seen + more, int(text(answer))) == (list(range(1, 6)), one.pid)
    asking = await shopper.at(one).start("ask")
    messages = asking.messages()
    result = {"role": "assistant", "content": {"type": "text", "text": "me"}, "model": "Ada"}
    assert await shopper.at(two).reply(await anext(messages), result) == 202
    assert text(await anext(messages)) == "Ada"
    body = await shopper.at(one).lost(end)
    repeated = asyncio.create_task(shopper.at(two).again(body))
    end.touch()
    assert await repeated == one.pid, "it was not run again"
    number = next(shopper.numbers)
    response = await shopper.at(one).post(steps(number, 100))
    await anext(response.messages())
    assert await shopper.at(two).tell("notifications/cancelled", {"requestId": number}) == 202
    assert (await response.answer())["error"]["code"] == REQUEST_CANCELLED
    found = await task_ended(two, await begun(one, seconds=0.1))
    assert found["result"]["structuredContent"]["result"] == one.pid


@http_test
async def test_sessions_continue_between_two_releases_on_one_file(predecessor: Path, tmp_path: Path) -> None:
    with store_path() as store, contextlib.ExitStack() as stack:
        old = stack.enter_context(serving(store, predecessor))
        shopper = await Shopper.opened(old.port)
        assert [await shopper.call("bump") for _ in range(3)] == [1, 2, 3]
        handle = await shopper.call("lend", value=42)
        left = await shopper.cut_after(2, steps(100, 4))
        kept = await shopper.lost(tmp_path / "kept")
        (tmp_path / "kept").touch()
        # Side by side.
        new = await asyncio.to_thread(stack.enter_context, serving(store))
        assert await shopper.at(new).call("bump") == 4
        assert await shopper.at(old).call("bump") == 5
        await exchanged(shopper, old, new, tmp_path / "1")
        await exchanged(shopper, new, old, tmp_path / "2")
        # The older process is gone: its data is in the store.
        await ended(old)
        more, answer = await shopper.at(new).rest(left[0])
        assert (left[1] + more, int(text(answer))) == ([1, 2, 3, 4], old.pid)
        assert await shopper.again(kept) == old.pid
        assert await shopper.call("lent", handle=handle) == 42
        assert await shopper.call("bump") == 6
        # And back, to a file that the newer one has written.
        back = await asyncio.to_thread(stack.enter_context, serving(store, predecessor))
        assert await shopper.at(back).call("bump") == 7
        assert await shopper.call("lent", handle=handle) == 42
        await exchanged(shopper, new, back, tmp_path / "3")
        await ended(new)
        assert await shopper.at(back).call("counted") == 7
        assert await shopper.delete() == 204
        await ended(back)
        lines = [line for process in (old, new, back) for line in process.output().splitlines()]
        # A cancelled call is logged as failed, with its outcome.
        assert [line for line in lines if "failed" in line and '"outcome":"cancelled"' not in line] == []
