"""Clients that do everything at once: call, get cut, resume wherever the balancer sends them, repeat, duplicate, answer."""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Iterable
from hashlib import sha256
from random import Random
from typing import Any, Final, NamedTuple

from typing_extensions import override

from tests.chaos.backs import BACKS
from tests.chaos.notes import CREDIT, FANOUT, Call, Leaver, Notes, Plan, Received
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
SPREAD: Final = 0.7
"""Cuts and duplicates are spread over this share of a client's calls: what could not happen at once still can."""
PLACES: Final = ("answer",) * 5 + ("head", "body", "last", "half", "slow")
"""Where a connection is cut: in what the client reads; in the head or the body of its request; before the last event. Or it is closed on
one side, or not read for a while."""
SLOW: Final = (0.5, 2.0)
"""Seconds for which a slow client reads nothing."""


class Work(NamedTuple):
    """One kind of call."""

    has_events: bool = False
    """It reports progress, so often and in such intervals as the plan says."""
    is_cut: bool = False
    """Its connections are cut. A plain answer that was written counts as received: only streams are cut, or answers that would become streams."""
    fans_out: bool = False
    seconds: tuple[float, float] | None = None
    """How long it works."""


WORK: Final[dict[str, Work]] = {
    "ticks": Work(has_events=True, is_cut=True),
    "fanout": Work(is_cut=True, fans_out=True),
    "bump": Work(),
    "quick": Work(),
    "counter": Work(),
    "slow": Work(seconds=(0.2, 4.0)),
}


class Trick(NamedTuple):
    """What one connection of a client does."""

    place: str
    at: int


class Clipped(Connection):
    """A connection that ends while its client sends, or is closed on one side, or not read for a while."""

    send_at: int | None = None
    """Cut after so many bytes of the request."""
    half = False
    slow = 0.0
    is_clipped = False
    """It was cut as planned."""

    @override
    async def send(self, data: bytes) -> None:
        if self.send_at is not None and len(data) > self.send_at:
            await super().send(data[: self.send_at])
            # The other side must have read it: a reset would take the bytes away.
            await asyncio.sleep(0.02)
            self.is_clipped = True
            self.cut()
            raise Cut(f"cut by the test after {self.send_at} bytes of the request")
        await super().send(data)
        if self.half:
            self._transport.write_eof()
        if self.slow:
            self.stop_reading()
            asyncio.get_running_loop().call_later(self.slow, self._go_on)

    def _go_on(self) -> None:
        if not self.is_ended:
            self.go_on_reading()


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
        self.cuts: deque[Trick] = deque(
            Trick(self.random.choice(PLACES), self.random.randrange(OPENING_BYTES))
            for _ in range(plan.cuts // plan.sessions + (number < plan.cuts % plan.sessions))
        )
        self.imitations = plan.imitations // plan.sessions + (number < plan.imitations % plan.sessions)
        self._planned_cuts, self._planned_imitations = len(self.cuts), self.imitations
        self._ticks = 0
        self._began = time.time()
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
        self.notes.sessions[self.session] = time.time()
        self.notes.secrets += [self.client.session_id, self.client.token]

    async def play(self) -> None:
        """Make all calls, then read the counter."""
        await self.open()
        self._began = time.time()
        kinds = ["ticks"] * self.plan.requests
        others = BACKS[self.plan.back].kinds
        kinds += [others[index % len(others)] for index in range(max(3, self.plan.requests // 4))]
        self.random.shuffle(kinds)
        await self.calls_of(kinds)

    async def calls_of(self, kinds: Iterable[str]) -> None:
        """Make calls of these kinds, some side by side; then count, and read the counter."""
        waiting = iter(kinds)

        async def lane() -> None:
            for kind in waiting:
                if self.plan.load_seconds and time.time() - self._began > self.plan.load_seconds:
                    return
                await self.call(kind)

        async with asyncio.TaskGroup() as lanes:
            for _ in range(self.plan.lanes):
                lanes.create_task(lane())
        await asyncio.gather(*self.tasks)
        if "bump" not in BACKS[self.plan.back].kinds:
            return
        await asyncio.gather(*(self.call("bump") for _ in range(BURST)))
        call = await self.call("counter")
        if call.text:
            self.notes.counters[self.session] = int(call.text.rpartition("/")[2])

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
        call, body = self._new("ticks")
        call.is_left = True
        connection = await Connection.open(self.client.port)
        try:
            response = await self.client.post(body, on=connection)
            if not response.is_stream:
                raise Cut(f"no stream to leave, but {response.status}")
            async for event in response.events():
                if event.data:
                    break
        finally:
            connection.cut()
        self.notes.leavers.append(Leaver(self.session, time.time()))

    # One call

    def _new(self, tool: str) -> tuple[Call, bytes]:
        number = next(self.client.numbers)
        nonce = f"nonce-{self.plan.seed}-{self.number}-{number}"
        arguments: dict[str, Any] = {"nonce": nonce}
        work = WORK[tool]
        self._ticks += work.has_events
        if work.has_events:
            interval = self.random.uniform(0.5, 1.5) * self.plan.interval
            arguments |= {"n": self.plan.events, "interval": interval}
        elif work.fans_out:
            arguments["n"] = FANOUT
        elif work.seconds:
            arguments["seconds"] = self.random.uniform(*work.seconds)
        call = Call(
            nonce=nonce,
            session=self.session,
            id=number if self.random.random() < 0.5 else str(number),
            tool=tool,
            mark=BACKS[self.plan.back].mark(self.principal, self.session, nonce),
            steps_wanted=self.plan.events if work.has_events else 0,
        )
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": nonce}}
        self.calls.append(call)
        self.notes.calls.append(call)
        return call, json.dumps(request(call.id, "tools/call", params)).encode()

    async def call(self, tool: str) -> Call:
        """Make a call and see it through to its answer."""
        call, body = self._new(tool)
        call.began = time.time()
        try:
            async with asyncio.timeout(self.plan.patience):
                while call.answer is None:
                    if await self._connection(call, body):
                        await self._pause()
                while ticket := _ticket(call):
                    await self._collect(call, ticket)
        except TimeoutError:
            call.gave_up = f"nothing came for {self.plan.patience:g} s"
        except Lost as reason:
            call.gave_up = str(reason)
        call.ended = time.time()
        self.asking -= {name for name in self.asking if name.startswith(f"{call.nonce} ")}
        return call

    async def _connection(self, call: Call, body: bytes) -> bool:
        """Use one connection for a call; True if it is wise to wait before the next."""
        trick = (
            self.cuts.popleft()
            if WORK[call.tool].is_cut and self._is_due(len(self.cuts), self._planned_cuts)
            else None
        )
        fired = False
        connection: Clipped | None = None
        try:
            connection = await Clipped.open(self.client.port)
            cut_at = self._prepare(connection, trick, len(body))
            call.asked = time.time()
            # Closed on one side, or read late: this has happened also if the call ends well.
            fired = trick is not None and trick.place in {"half", "slow"}
            if call.last_id:
                call.resumes += 1
                response = await self.client.get(call.last_id, on=connection, cut_at=cut_at)
            else:
                call.posts += 1
                response = await self.client.post(body, on=connection, cut_at=cut_at)
            return await self._read(
                call, response, body, connection if trick and trick.place == "last" else None
            )
        except (Cut, OSError):
            if trick is not None and connection is not None:
                fired = (
                    fired
                    or connection.is_clipped
                    or (trick.place == "answer" and connection.received >= trick.at)
                )
            if fired:
                call.left.append(time.time())
            else:
                self.notes.count("broken by others")
            return True
        finally:
            if trick is not None and not fired:
                self.cuts.append(trick)
            elif trick is not None:
                self.notes.count("cuts")
                self.notes.count(f"cuts: {trick.place}")
            if connection is not None:
                connection.cut(reset=self.random.random() < 0.5)

    async def _collect(self, call: Call, ticket: str) -> None:
        """Ask for the result of a call that was handed over: at any replica, again and again."""
        params = {"name": "collect", "arguments": {"ticket": ticket, "wait": 0.3}}
        self.notes.count("collected")
        connection: Connection | None = None
        try:
            connection = await Connection.open(self.client.port)
            call.asked = time.time()
            response = await self.client.post(
                request(next(self.client.numbers), "tools/call", params), on=connection
            )
            self.notes.status(f"collect {response.status}")
            if response.status == 200:
                call.answer = await response.answer() or call.answer
            else:
                await self._refused(call, response)
        except (Cut, OSError):
            self.notes.count("broken by others")
        finally:
            if connection is not None:
                connection.cut()
        await self._pause()

    def _prepare(self, connection: Clipped, trick: Trick | None, size: int) -> int | None:
        """Tell a connection what it will do; return how many bytes of the answer it reads."""
        match trick:
            case Trick("answer", at):
                return at
            case Trick("head", at):
                connection.send_at = 1 + at % 150
            case Trick("body", at):
                connection.send_at = 150 + at % max(1, size)
            case Trick("half"):
                connection.half = True
            case Trick("slow"):
                connection.slow = self.random.uniform(*SLOW)
            case _:
                pass
        return None

    async def _read(self, call: Call, response: Response, body: bytes, clipped: Clipped | None) -> bool:
        """Read an answer; `clipped`: only until its last event."""
        self.notes.status(str(response.status))
        if response.status != 200:
            await self._refused(call, response)
            return True
        if not response.is_stream:
            self._take(call, Event("", (await response.body()).decode()))
            return False
        async for event in response.events(comments=True):
            if event.comment.startswith("gap"):
                call.gaps.append(event.comment)
            self._take(call, event)
            if (
                1 <= call.steps < call.steps_wanted
                and event.data
                and self._is_due(self.imitations, self._planned_imitations)
            ):
                self.imitations -= 1
                self._spawn(self._imitate(call, body))
            if clipped is not None and call.answer is None and call.steps >= call.steps_wanted > 0:
                clipped.is_clipped = True
                raise Cut("cut by the test before the last event")
        return call.answer is None

    def _is_due(self, left: int, planned: int) -> bool:
        """True if of the planned cuts, or duplicates, so many are left that the next one is due by now."""
        part = self._ticks / max(1, self.plan.requests)
        if self.plan.load_seconds:
            part = max(part, (time.time() - self._began) / self.plan.load_seconds)
        return left > max(0.0, planned * (1 - part / SPREAD))

    async def _refused(self, call: Call, response: Response) -> None:
        body = (await response.body()).decode(errors="replace")
        ours = "jsonrpc" in body
        match response.status:
            case 400 if IN_FLIGHT in body and not call.last_id:
                call.refused += 1
            case 429 | 503 if ours:
                # The judge looks whether a replica had a reason to send the call away.
                self.notes.unavailable.append((call.asked, time.time()))
            case 502 | 503 | 504 if not ours:
                self.notes.count("balancer had no replica")
            case 400 | 408 if not ours:
                # The balancer, about a request that was closed on one side or came in part.
                self.notes.count("balancer refused half a request")
            case status if status >= 500:
                self.notes.violate("I12", f"{call.nonce} got {status} {body[:200]}: {call.state}")
            case status:
                raise Lost(f"{status} {body[:300]}")

    def _take(self, call: Call, event: Event) -> None:
        """Write a message down, and answer the questions."""
        if not event.data:
            if event.id:
                call.received.append(Received(time.time(), event.id, "mark", ""))
            return
        message = event.message
        what, text = "other", ""
        if "method" not in message:
            what, text = "answer", repr(message.get("id"))
            call.answer = call.answer or message
        elif "id" in message:
            what, text = "ask", message["params"]["messages"][0]["content"]["text"]
            self._asked(call, message, text)
        elif "message" in message["params"]:
            what, text = "progress", str(message["params"]["message"])
            self.notes.count("events")
        call.received.append(Received(time.time(), event.id, what, text))

    # Answers and imitations

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _asked(self, call: Call, ask: Any, question: str) -> None:
        name = f"{call.nonce} {ask['id']}"
        if name in self.asking:
            return
        self.asking.add(name)
        most = self.notes.most_asked
        most[self.session] = max(most.get(self.session, 0), len(self.asking))
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
            self.notes.status(f"answer {status}")
            if status == 202:
                self.notes.count("answers")
                times -= 1
            elif status == 400:
                self.notes.violate("I6", f"the answer of {call.nonce} was refused")
                return
            elif status == 404:
                # The call itself, and the judge, see whether its session may be gone.
                self.notes.count("answers without a session")
                return
            else:
                await self._pause()

    async def _imitate(self, call: Call, original: bytes) -> None:
        """Send another request under an id in flight, or the same one although its reader lives."""
        word_for_word = self.random.random() < 0.3
        nonce = call.nonce if word_for_word else f"{call.nonce}-twice"
        body = original if word_for_word else original.replace(call.nonce.encode(), nonce.encode())
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
        self.notes.count("duplicates")
        self.notes.status(f"duplicate {status}")
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


def _ticket(call: Call) -> str:
    """Return the ticket of a call that was handed over; empty if its result is here."""
    result = (call.answer or {}).get("result", {})
    return str(result.get("structuredContent", {}).get("ticket", ""))
