"""Clients of 2026-07-28: calls with idempotency keys that are cut and sent again, tasks, plain calls, and subscriptions."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from random import Random
from typing import Any, Final

from limpet.protocol.idempotency import KEY
from tests.chaos.backs import BACKS
from tests.chaos.fleet import Fleet
from tests.chaos.notes import Call, Notes, Plan, Received
from tests.chaos.replica import TOKEN
from tests.http.client import Connection, Cut, Response, sessionless
from tests.messages import metadata
from tests.workers.tasks import TASKS

AGAIN: Final = {408, 429, 502, 503, 504}
"""Statuses after which a client sends its request again."""
ENDED: Final = {"completed", "failed", "cancelled"}
PAUSE: Final = (0.02, 0.3)
CLOCK: Final = "data://clock"
HEARD: Final = 15.0
"""Seconds within which every listener hears of a change when all faults are over."""


class Modern:
    """One client without a session."""

    def __init__(self, number: int, plan: Plan, notes: Notes, port: int) -> None:
        self._random = Random(f"{plan.seed}/modern/{number}")
        self._number = number
        self._plan = plan
        self._notes = notes
        self._port = port
        self._principal = f"user{number % plan.principals}"
        self._token = f"{TOKEN}{self._principal}"
        self._cuts = plan.modern_calls // 2

    async def play(self) -> None:
        """Make all calls, one after another."""
        kinds = BACKS[self._plan.back].modern
        began = time.time()
        for number in range(self._plan.modern_calls):
            if self._plan.load_seconds and time.time() - began > self._plan.load_seconds:
                return
            await self._call(number, kinds[number % len(kinds)])

    async def _call(self, number: int, kind: str) -> None:
        nonce = f"nonce-{self._plan.seed}-m{self._number}-{number}"
        call = Call(
            nonce=nonce,
            session="",
            id=number,
            tool=kind,
            era="2026",
            mark=BACKS[self._plan.back].mark(self._principal, "", nonce),
            began=time.time(),
        )
        self._notes.calls.append(call)
        work = {"keyed": self._keyed, "errand": self._errand, "quick": self._plain}[kind]
        try:
            async with asyncio.timeout(self._plan.patience):
                await work(call)
        except TimeoutError:
            call.gave_up = f"nothing came for {self._plan.patience:g} s"
        call.ended = time.time()

    async def _keyed(self, call: Call) -> None:
        """Send a call under one key until its answer is here."""
        arguments = {"nonce": call.nonce, "n": 5, "interval": self._random.uniform(0.05, 0.3)}
        params = {"name": "ticks", "arguments": arguments}
        while call.answer is None:
            cut = self._random.randrange(800) if self._cuts and self._random.random() < 0.5 else None
            self._cuts -= cut is not None
            await self._send(call, params, {KEY: call.nonce, "progressToken": call.nonce}, cut)

    async def _plain(self, call: Call) -> None:
        """Send a call. A broken connection is its end: the call is cancelled."""
        params = {"name": "quick", "arguments": {"nonce": call.nonce}}
        while call.answer is None and not call.is_left:
            call.is_left = await self._send(call, params, {}, None)

    async def _errand(self, call: Call) -> None:
        """Start a task, and ask for it at any replica until it has ended. Its key makes the start safe to repeat."""
        arguments = {"nonce": call.nonce, "seconds": self._random.uniform(0.1, 3.0)}
        while call.answer is None:
            await self._send(call, {"name": "errand", "arguments": arguments}, {KEY: call.nonce}, None)
        task = call.answer.get("result", {}).get("taskId", "")
        # The beginning of a task is no answer to the call.
        call.answer = None if task else call.answer
        while task:
            await self._pause()
            answer = await self._ask("tasks/get", {"taskId": task})
            if answer is None:
                continue
            self._notes.count("task polls")
            if "error" in answer or answer["result"]["status"] in ENDED:
                found = answer.get("result", {})
                call.answer = (
                    answer if not found else {k: found[k] for k in ("result", "error") if k in found}
                )
                break

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request that may be repeated; None if no answer came."""
        with contextlib.suppress(Cut, OSError):
            async with _connected(self._port) as connection:
                response = await sessionless(
                    self._port, method, params, token=self._token, capabilities=TASKS, on=connection
                )
                if response.status not in AGAIN:
                    return await response.answer()
        return None

    async def _send(self, call: Call, params: dict[str, Any], meta: dict[str, Any], cut: int | None) -> bool:
        """Use one connection for a call; True if it broke after the request was sent."""
        stated = {**params, "_meta": {**metadata(capabilities=TASKS), **meta}}
        try:
            async with _connected(self._port) as connection:
                connection.cut_at = cut
                call.posts += 1
                call.asked = time.time()
                response = await sessionless(
                    self._port, "tools/call", stated, id=call.id, token=self._token, on=connection
                )
                self._notes.status(f"2026 {response.status}")
                return await self._read(call, response)
        except (Cut, OSError):
            call.left.append(time.time())
            self._notes.count("2026 connections broken")
            await self._pause()
            return True

    async def _read(self, call: Call, response: Response) -> bool:
        if response.status in AGAIN:
            if response.status == 503 and "jsonrpc" in (await response.body()).decode(errors="replace"):
                self._notes.unavailable.append((call.asked, time.time()))
            await self._pause()
            return False
        async for message in response.messages():
            what, text = "other", ""
            if "method" not in message:
                what, text = "answer", repr(message.get("id"))
                call.answer = message
            elif "message" in message.get("params", {}):
                what, text = "other", str(message["params"]["message"])
                self._notes.count("events")
                if not text.startswith(call.mark):
                    self._notes.violate("I3", f"{call.nonce} got {text!r}")
            call.received.append(Received(time.time(), "", what, text))
        return call.answer is None

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(*PAUSE))

    async def listen(self, heard: "asyncio.Queue[str]") -> None:
        """Listen for changes of a resource, and begin again after each break; puts the URIs that change."""
        wanted = {"notifications": {"resourceSubscriptions": [CLOCK]}}
        while True:
            with contextlib.suppress(Cut, OSError):
                async with _connected(self._port) as connection:
                    response = await sessionless(
                        self._port, "subscriptions/listen", wanted, token=self._token, on=connection
                    )
                    if response.status == 200:
                        async for message in response.messages():
                            heard.put_nowait(str(message.get("params", {}).get("uri", "began")))
            await self._pause()

    async def touch(self) -> None:
        """Change the resource, at some replica."""
        params = {"name": "touch", "arguments": {"uri": CLOCK}}
        await self._ask("tools/call", params)


@contextlib.asynccontextmanager
async def _connected(port: int) -> AsyncIterator[Connection]:
    connection = await Connection.open(port)
    try:
        yield connection
    finally:
        connection.cut()


async def all_hear(running: Fleet, moderns: list[Modern], notes: Notes) -> None:
    """When the faults are over, a change at any replica reaches every listener."""
    del running
    queues: list[asyncio.Queue[str]] = [asyncio.Queue() for _ in moderns]
    listeners = [
        asyncio.create_task(client.listen(queue)) for client, queue in zip(moderns, queues, strict=True)
    ]
    try:
        async with asyncio.timeout(HEARD):
            await asyncio.gather(*(_until(queue, "began") for queue in queues))
            await moderns[0].touch()
            await asyncio.gather(*(_until(queue, CLOCK) for queue in queues))
            notes.counts["listeners that heard"] = len(queues)
    except TimeoutError:
        notes.violate("I2", f"a listener did not hear of a change within {HEARD:g} s")
    finally:
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)


async def _until(queue: "asyncio.Queue[str]", wanted: str) -> None:
    while await queue.get() != wanted:
        pass
