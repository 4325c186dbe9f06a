"""Clients that do everything at once: call, get cut, resume wherever the balancer sends them, repeat, duplicate, answer."""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Iterable
from hashlib import sha256
from random import Random
from typing import Any, Final

from tests.chaos.notes import CREDIT, FANOUT, Call, Leaver, Notes, Plan
from tests.chaos.replica import TOKEN
from tests.http.client import Client, Connection, Cut, Response
from tests.messages import Event, request

IN_FLIGHT: Final = "already in flight"
OPENING_BYTES: Final = 2_200
"""About the size of a call's stream: cuts fall anywhere in it."""
BURST: Final = 6
"""Increments at once, at the end of a session: they land on all replicas."""
PAUSE: Final = (0.02, 0.3)
"""Seconds before a client comes back."""


class Lost(Exception):
    """The session is gone, or the call's patience is over: this call ends without an answer."""


def key_of(session_id: str) -> str:
    """Return the name of a session in payloads."""
    return sha256(session_id.encode()).hexdigest()[:16]


class Player:
    """One session's client."""

    def __init__(self, number: int, plan: Plan, notes: Notes, port: int) -> None:
        self.random = Random(f"{plan.seed}/{number}")
        self.number = number
        self.plan = plan
        self.notes = notes
        self.principal = f"user{number % plan.principals}"
        self.client = Client(port, token=f"{TOKEN}{self.principal}")
        self.session = ""
        self.cuts: deque[int] = deque(
            self.random.randrange(OPENING_BYTES)
            for _ in range(plan.cuts // plan.sessions + (number < plan.cuts % plan.sessions))
        )
        self.imitations = plan.imitations // plan.sessions + (number < plan.imitations % plan.sessions)
        self.bumped = 0
        self.asking: set[str] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.calls: list[Call] = []

    # A session's life

    async def open(self) -> None:
        """Initialize, and try again until it succeeds."""
        while not self.session:
            with contextlib.suppress(Cut, OSError, AssertionError):
                opened = await Client.opened(self.client.port, token=self.client.token)
                self.client.session_id = opened.session_id
                self.session = key_of(opened.session_id)
                break
            await self._pause()
        self.notes.sessions[self.session] = self.principal
        self.notes.secrets |= {self.client.session_id, self.client.token}

    async def play(self) -> None:
        """Make all calls, then read the counter."""
        await self.open()
        kinds = ["ticks"] * self.plan.requests
        kinds += [("bump", "fanout", "quick")[index % 3] for index in range(max(3, self.plan.requests // 4))]
        self.random.shuffle(kinds)
        await self.calls_of(kinds)

    async def calls_of(self, kinds: Iterable[str]) -> None:
        """Make calls of these kinds, some side by side; then count, and read the counter."""
        waiting = iter(kinds)

        async def lane() -> None:
            for kind in waiting:
                await self.call(kind)

        async with asyncio.TaskGroup() as lanes:
            for _ in range(self.plan.lanes):
                lanes.create_task(lane())
        await asyncio.gather(*self.tasks)
        await asyncio.gather(*(self.call("bump") for _ in range(BURST)))
        call = await self.call("counter")
        if call.answer is not None and "result" in call.answer:
            value = int(_text(call).rpartition("/")[2])
            self.notes.counters[self.session] = (self.bumped, value)

    async def stay(self, over: asyncio.Event) -> None:
        """Send something now and then, also after all calls were made."""
        while not over.is_set():
            with contextlib.suppress(TimeoutError, Cut, OSError):
                if self.session:
                    await self.client.tell("notifications/roots/list_changed")
                async with asyncio.timeout(3):
                    await over.wait()

    async def leave(self) -> None:
        """Begin a call and leave in the middle of it, and never return."""
        call = self._new("ticks")
        connection = await Connection.open(self.client.port)
        try:
            response = await self.client.post(call.body, on=connection)
            if not response.is_stream:
                raise Cut(f"no stream to leave, but {response.status}")
            async for event in response.events():
                if event.data:
                    break
        finally:
            connection.cut()
        self.notes.leavers.append(Leaver(self.session, time.time()))

    # One call

    def _new(self, tool: str) -> Call:
        number = next(self.client.numbers)
        nonce = f"nonce-{self.plan.seed}-{self.number}-{number}"
        arguments: dict[str, Any] = {"nonce": nonce}
        if tool == "ticks":
            interval = self.random.uniform(0.5, 1.5) * self.plan.interval
            arguments |= {"n": self.plan.events, "interval": interval}
        elif tool == "fanout":
            arguments["n"] = FANOUT
        call = Call(
            nonce=nonce,
            principal=self.principal,
            session=self.session,
            id=number if self.random.random() < 0.5 else str(number),
            tool=tool,
            arguments=arguments,
        )
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": nonce}}
        call.body = json.dumps(request(call.id, "tools/call", params)).encode()
        self.calls.append(call)
        self.notes.calls.append(call)
        return call

    async def call(self, tool: str) -> Call:
        """Make a call and see it through to its answer."""
        call = self._new(tool)
        call.began = time.time()
        try:
            async with asyncio.timeout(self.plan.patience):
                while call.answer is None:
                    if await self._connection(call):
                        await self._pause()
        except TimeoutError:
            self.notes.violate(
                "I1", f"{call.nonce} has no end after {self.plan.patience:g} s: {_state(call)}"
            )
        except Lost:
            pass
        call.ended = time.time()
        self.notes.latencies.append(call.ended - call.began)
        self.asking -= {name for name in self.asking if name.startswith(f"{call.nonce} ")}
        if call.answer is not None:
            self._judge(call)
        return call

    async def _connection(self, call: Call) -> bool:
        """Use one connection for a call; True if it is wise to wait before the next."""
        # A plain answer that was written counts as received: only streams are cut, or answers that would become streams.
        cut = self.cuts.popleft() if self.cuts and call.tool in {"ticks", "fanout"} else None
        fired = False
        connection: Connection | None = None
        try:
            connection = await Connection.open(self.client.port)
            if call.last_id:
                call.resumes += 1
                response = await self.client.get(call.last_id, on=connection, cut_at=cut)
            else:
                call.posts += 1
                response = await self.client.post(call.body, on=connection, cut_at=cut)
            return await self._read(call, response)
        except (Cut, OSError):
            fired = connection is not None and cut is not None and connection.received >= cut
            call.cuts += fired
            if fired:
                call.left.append(time.time())
            self.notes.counts["cuts" if fired else "broken by others"] += 1
            return True
        finally:
            if cut is not None and not fired:
                self.cuts.appendleft(cut)
            if connection is not None:
                connection.cut(reset=self.random.random() < 0.5)

    async def _read(self, call: Call, response: Response) -> bool:
        self.notes.statuses[str(response.status)] += 1
        if response.status != 200:
            await self._refused(call, response)
            return True
        if not response.is_stream:
            call.answer = await response.json()
            return False
        async for event in response.events(comments=True):
            if event.comment.startswith("gap"):
                call.gaps += 1
                self.notes.violate("I2", f"{call.nonce} has a gap: {event.comment}")
            if call.answer is not None and event.data:
                self.notes.violate("I1", f"{call.nonce} gets more after its end: {event.data[:200]}")
            self._take(call, event)
            if call.steps == 1 and event.data and self._may_imitate():
                self.imitations -= 1
                self._spawn(self._imitate(call))
        return call.answer is None

    def _may_imitate(self) -> bool:
        """Spread the duplicates over the session, early enough that none is left at its end."""
        left = max(1, self.plan.requests - sum(call.tool == "ticks" for call in self.calls))
        return self.random.random() < 2 * self.imitations / left

    async def _refused(self, call: Call, response: Response) -> None:
        body = (await response.body()).decode(errors="replace")
        ours = "jsonrpc" in body
        what = f"{call.nonce} got {response.status} {body[:200]}: {_state(call)}"
        match response.status:
            case 400 if IN_FLIGHT in body and not call.last_id:
                call.refused += 1
            case 404:
                self.notes.violate("I8", f"a living session was not found: {what}")
                raise Lost
            case 503 if ours:
                self.notes.unavailable.append(time.time())
            case 502 | 503 | 504 if not ours:
                self.notes.counts["balancer had no replica"] += 1
            case status if status >= 500:
                self.notes.violate("I12", what)
            case 204:
                self.notes.violate("I1", f"nothing is left, but the end never came: {what}")
                raise Lost
            case _:
                self.notes.violate("I2", what)
                raise Lost

    def _take(self, call: Call, event: Event) -> None:
        if not event.id:
            return
        call.last_id = event.id
        stream, seq, _tag = event.id.rsplit(".", 2)
        if call.stream not in ("", stream):
            self.notes.violate("I2", f"{call.nonce} moved from one stream to another")
        call.stream = stream
        if not event.data:
            return
        if call.seq and int(seq) != call.seq + 1:
            self.notes.violate("I2", f"{call.nonce} got event {seq} after {call.seq}")
        call.seq = int(seq)
        call.events += 1
        self._message(call, event.message)

    def _message(self, call: Call, message: Any) -> None:
        if "method" not in message:
            if message.get("id") != call.id or type(message.get("id")) is not type(call.id):
                self.notes.violate("I1", f"{call.nonce} got the answer to another id")
            call.answer = message
        elif "id" in message:
            self._asked(call, message)
        else:
            params = message["params"]
            expected = f"{call.mark}/{call.steps + 1}"
            if params.get("message") != expected:
                law = "I2" if str(params.get("message")).startswith(call.mark) else "I3"
                self.notes.violate(law, f"{call.nonce} got {params.get('message')!r}, not {expected!r}")
            call.steps += 1
            self.notes.counts["events"] += 1

    def _judge(self, call: Call) -> None:
        answer = call.answer
        if "error" in answer:
            return
        result, text = answer["result"], _text(call)
        if result.get("isError"):
            self.notes.counts["failed tools"] += 1
        elif not text.startswith(call.mark):
            self.notes.violate("I3", f"{call.nonce} got {text[:100]!r}")
        elif call.tool == "ticks" and call.stream and call.steps != self.plan.events:
            self.notes.violate("I2", f"{call.nonce} ended well after {call.steps} of its events")
        elif call.tool == "fanout":
            expected = [call.mark, *(f"answer to {call.mark}/{number}" for number in range(FANOUT))]
            if text.split("\n") != expected:
                self.notes.violate("I6", f"{call.nonce} was given other answers: {text[:200]!r}")
        elif call.tool == "bump":
            self.bumped += 1

    # Answers and imitations

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _asked(self, call: Call, ask: Any) -> None:
        question = ask["params"]["messages"][0]["content"]["text"]
        if not question.startswith(call.mark):
            self.notes.violate("I3", f"{call.nonce} is asked {question!r}")
        name = f"{call.nonce} {ask['id']}"
        if name in self.asking:
            return
        self.asking.add(name)
        most = self.notes.most_asked
        most[self.session] = max(most[self.session], len(self.asking))
        if len(self.asking) > CREDIT:
            self.notes.crowds.append(
                (time.time(), f"{len(self.asking)} asks are outstanding in {self.session}")
            )
        self._spawn(self._answer(call, ask, question, name))

    async def _answer(self, call: Call, ask: Any, question: str, name: str) -> None:
        await asyncio.sleep(self.random.uniform(0.01, 0.1))
        self.asking.discard(name)
        content = {"type": "text", "text": f"answer to {question}"}
        result = {"role": "assistant", "content": content, "model": "none"}
        times = 2 if self.random.random() < 0.2 else 1
        while times and call.answer is None:
            try:
                status = await self.client.reply(ask, result)
            except (Cut, OSError):
                status = 0
            self.notes.statuses[f"answer {status}"] += 1
            if status == 202:
                self.notes.counts["answers"] += 1
                times -= 1
            elif status == 400:
                self.notes.violate("I6", f"the answer of {call.nonce} was refused")
                return
            elif status == 404:
                self.notes.violate("I8", f"the session of {call.nonce} was not found by an answer")
                return
            else:
                await self._pause()

    async def _imitate(self, call: Call) -> None:
        """Send another request under an id in flight, or the same one although its reader lives."""
        word_for_word = self.random.random() < 0.3
        nonce = call.nonce if word_for_word else f"{call.nonce}-twice"
        body = call.body if word_for_word else call.body.replace(call.nonce.encode(), nonce.encode())
        connection: Connection | None = None
        status = 0
        try:
            connection = await Connection.open(self.client.port)
            async with asyncio.timeout(10):
                response = await self.client.post(body, on=connection)
            status = response.status
        except (Cut, OSError):
            pass
        finally:
            if connection is not None:
                connection.cut()
        self.notes.counts["duplicates"] += 1
        self.notes.statuses[f"duplicate {status}"] += 1
        self.notes.duplicates[nonce] = (call.nonce, status)

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.uniform(*PAUSE))

    # The end

    async def delete(self) -> None:
        """End the session."""
        for _ in range(40):
            with contextlib.suppress(Cut, OSError):
                status = await self.client.delete()
                if status in {204, 404}:
                    self.notes.deleted[self.session] = time.time()
                    return
            await self._pause()
        self.notes.violate("I8", f"{self.session} cannot be deleted")


def _text(call: Call) -> str:
    text: str = call.answer["result"]["content"][0]["text"]
    return text


def _state(call: Call) -> str:
    return (
        f"{call.posts} posts, {call.resumes} resumes, {call.cuts} cuts, {call.refused} refused, "
        f"{call.steps} steps, at {call.last_id or 'no event'}"
    )
