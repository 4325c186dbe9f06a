"""Hand-over: a call that takes longer than its client waits is answered, and goes on. Its result is collected later.

It stands between the engine and the back, for servers of functions and for every server behind, and only if it is on:
otherwise the engine calls the back itself. A call has two exchanges then:

    client's request ──▶ outer exchange ── waits at most `after` seconds ──▶ inner exchange ──▶ back
                         id, slot, stream, rounds; ends when             the call itself; ends when its handler ends
                         the request is answered

While the outer exchange waits, the inner one has no life of its own: its messages and asks pass through the outer one,
and a cancellation of the outer one stops it (`inner.py`). If it ends in time, its result is the answer, unchanged.

If it does not, the inner exchange becomes a *task*: the store has a record of it, under the principal and a random id
(`tasks.py`). Then the outer exchange ends with an answer that names the task. There are three ways to name it, by what
the client understands:

    client                                the answer                       how the client gets the result
    ──────────────────────────────────    ─────────────────────────────    ─────────────────────────────────────────────
    2026-07-28, declares tasks            a task                           tasks/get
    2026-07-28, without tasks             `requestState` with the id       a retry: each waits, and gets the next state;
                                                                           after the last one, a ticket
    a session (HTTP, stdio)               a result with a ticket           the tool `collect`

From then on nothing of the request can stop the call: its connection, its cancellation and its session may end.
`tasks/cancel` and `collect` with `cancel` stop it. It keeps its slot, or its turn, until its handler ends. All requests
for the result read the store (`collecting.py`): any replica answers them, and after the death of the owner they get the
error −31002.

Why no result is lost or doubled. The record is stored before the answer that names it. If the handler ends while the
record is on its way, its result is the answer, and the record is ended: no client knows its id. Between the last check
of the handler and `become_task` there is no await. If the record cannot be stored (a limit, an outage), nothing
changes: the request waits on, and it is tried again later.

Why `collect` needs no slot. It would wait behind the call that it waits for. It is control traffic (`Access.collects`),
in no order, and at most as many requests of one client wait as a session has slots: the others are answered at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from limpet.core.exchange import ExchangeInput, step
from limpet.core.tasks import TaskState, TaskStatus
from limpet.engine import task_requests
from limpet.engine.collecting import Collecting
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.engine.exchanges import Exchanges
from limpet.engine.handling import run
from limpet.engine.inner import InnerExchange, inner_of
from limpet.engine.observed_store import unobserved
from limpet.engine.rounds import RoundWriter
from limpet.engine.runtime import Runtime
from limpet.engine.sessionless import SessionlessCalls
from limpet.engine.tasks import Tasks
from limpet.errors import Busy, ConfigError, InvalidParams, UnknownTask
from limpet.protocol.hand_over import (
    TOOL_NAME,
    UNKNOWN_TICKET,
    collect_tool,
    read_ticket,
    ticket_result,
    told,
    with_ticket,
)
from limpet.protocol.older import fit
from limpet.protocol.patience import HandOverTime, check_time, hand_over_after
from limpet.protocol.quirks import SHOWN_NAME
from limpet.protocol.results import CallToolResult
from limpet.protocol.sessionless import TASKS, typed_result
from limpet.protocol.tasks import Progress, declares_tasks
from limpet.protocol.versions import SESSIONLESS
from limpet.stores.base import NoTasks, refuse_tasks
from limpet.wire.jsonrpc import encode

ROUNDS: Final = 8
"""How often a client of 2026-07-28 is asked to come back before it gets a ticket: clients stop after ten rounds, and
questions take some."""
GROWN: Final = 45.0
"""The wait of a retry doubles from round to round up to this: many gateways cut a response after 60 s."""
COLLECT_PART: Final = 0.8
"""The part of the hand-over time for which `collect` waits."""
_CANCELLED: Final = "The call was stopped. What it had done before is not undone."

Handle = Callable[[Exchange], Awaitable[bytes]]


class HandOver:
    """Answers the requests of slow calls, and those for their results."""

    def __init__(
        self, runtime: Runtime, exchanges: Exchanges, sessionless: SessionlessCalls, tasks: Tasks
    ) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._exchanges = exchanges
        self._sessionless = sessionless
        self._tasks = tasks
        self._handle = runtime.handle
        self.collecting: Collecting = Collecting(runtime, tasks)
        self._usual = settings.hand_over
        self._set = dict(settings.hand_over_tools)
        self._declared: Mapping[str, HandOverTime] = {}
        check_time("hand_over", self._usual)
        for tool, time in self._set.items():
            check_time(f"hand_over_tools.{tool}", time)
        if TOOL_NAME.fullmatch(settings.collect_tool) is None:
            raise ConfigError(f"collect_tool={settings.collect_tool!r} is not a valid name of a tool")
        self.collect: str = settings.collect_tool
        """The name of the tool that collects."""
        self._clashed = False
        self._inner: dict[Exchange, InnerExchange] = {}
        """By the exchange of the request: the calls that can be handed over, and were not yet."""
        self._acts: dict[str, Handle] = {
            "tools/call": self._call,
            "tools/list": self._list,
            "server/discover": self._discover,
            **dict.fromkeys(task_requests.METHODS, self._task),
        }
        self._switch()

    @property
    def is_on(self) -> bool:
        """True if a call can be handed over."""
        return any(time != "off" for time in (self._usual, *self._set.values(), *self._declared.values()))

    def declare(self, tools: Mapping[str, HandOverTime]) -> None:
        """Take the times that tools declare. Those of the settings override them."""
        self._declared = tools
        self._switch()

    def _switch(self) -> None:
        runtime, is_on = self._runtime, self.is_on
        if is_on and isinstance(store := unobserved(runtime.store), NoTasks):
            refuse_tasks(store)
        runtime.handle = self.handle if is_on else self._handle
        runtime.access.collect_tool = self.collect if is_on else ""

    def call_of(self, exchange: Exchange) -> Exchange:
        """Return the exchange that the back has for a request: the call itself."""
        return self._inner.get(exchange, exchange)

    def after(self, tool: object, client: object) -> float | None:
        """Return the seconds after which a call of a tool is handed over; None: it is not."""
        time = self._usual
        if type(tool) is str:
            time = self._set.get(tool, self._declared.get(tool, time))
        if time == "off":
            return None
        return hand_over_after(client) if time == "auto" else float(time)

    def limit(self, client: object) -> float:
        """Return how long a request for a result waits: less than the shortest time until a hand-over."""
        times = [self.after(name, client) for name in (None, *self._set, *self._declared)]
        return COLLECT_PART * min((time for time in times if time is not None), default=0.0)

    def handle(self, exchange: Exchange) -> Awaitable[bytes]:
        """Answer an exchange: a call with a limit, or the request for a result; the back answers all others."""
        return self._acts.get(exchange.request.method, self._handle)(exchange)

    # Calls

    def _call(self, exchange: Exchange) -> Awaitable[bytes]:
        if self._runtime.access.collects(exchange.request):
            return self._collect(exchange)
        name, client = exchange.request.params.get("name"), exchange.session.record.client
        seconds = self.after(name, client)
        if exchange.given.ticket:
            return self._next_round(exchange, self.limit(client) if seconds is None else seconds)
        return self._handle(exchange) if seconds is None else self._run_limited(exchange, seconds)

    async def _run_limited(self, outer: Exchange, seconds: float) -> bytes:
        """Return the result of a call, or after so many seconds the name of its task."""
        # Only calls that the back answers are watched: here the inner one.
        outer.began = None
        inner = self._inner[outer] = inner_of(outer)
        handler = asyncio.get_running_loop().create_task(self._run(inner), name=inner.key)
        inner.task = inner.handler = handler  # type: ignore[assignment] # its result is read here
        try:
            while True:
                awaited: set[asyncio.Future[Any]] = {handler, inner.wanted}
                await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if handler.done():
                    break
                if (inner.handed is not None or not _asks(outer)) and (
                    answer := await self._hand_over(outer, inner, handler)
                ) is not None:
                    return answer
        except asyncio.CancelledError:
            if inner.outer is not None:
                inner.state, _ = step(inner.state, ExchangeInput.CLOSED)
                await _stop(handler)
            raise
        finally:
            del self._inner[outer]
        return handler.result()

    async def _run(self, inner: InnerExchange) -> bytes:
        watch = self._runtime.watch
        if watch is None:
            return await self._handle(inner)
        inner.began = watch.now()
        try:
            result = await self._handle(inner)
        except BaseException as error:
            watch.ended(inner, error=error)
            raise
        watch.ended(inner, result)
        return result

    async def _hand_over(
        self, outer: Exchange, inner: InnerExchange, handler: asyncio.Task[bytes]
    ) -> bytes | None:
        """Make a task of a running call; return the answer that names it.

        None: it has ended meanwhile, or it is not possible now.
        """
        try:
            ticket, task = await self._tasks.open(inner)
        except Busy as error:
            self._runtime.observer.note("call.not_handed_over", error=error)
            inner.refuse(error)
            return None
        if handler.done():
            self._tasks.drop(task)
            return None
        self._keep_slot(outer, handler)
        inner.become_task(task)
        self._sessionless.count_task(inner, outer)
        # From now on its end is the end of a task.
        inner.task = self._runtime.begin(run(self._runtime, inner, self._sessionless, handler))
        takes_tasks = _takes_tasks(outer)
        self._note(outer, takes_tasks=takes_tasks)
        if (said := inner.told) is not None:
            self._runtime.spawn(self._tasks.describe(inner, said))
        if takes_tasks:
            return self._tasks.handle_of(ticket, task)
        return self._named(outer, ticket, said, 0)

    def _note(self, outer: Exchange, *, takes_tasks: bool) -> None:
        client = outer.session
        is_sessionless = client.revision is SESSIONLESS
        facts: dict[str, str] = {
            "tool": str(outer.request.params.get("name"))[:SHOWN_NAME],
            "client": client.client_name,
            "answer": "task" if takes_tasks else "state" if is_sessionless else "ticket",
        }
        if not is_sessionless:
            facts["session"] = client.name
        self._runtime.observer.note("call.handed_over", **facts)

    def _keep_slot(self, outer: Exchange, handler: asyncio.Task[bytes]) -> None:
        """Keep the slot or the turn of a session's call until its handler ends, although its request ends now."""
        if not isinstance(outer, SessionExchange):
            return
        turn = outer.turn
        if turn is not None:
            turn.enter()
            handler.add_done_callback(lambda _: turn.leave())
        elif not outer.claim.control:
            outer.session.gate.stay()
            handler.add_done_callback(lambda _: self._leave_slot(outer))

    def _leave_slot(self, outer: SessionExchange) -> None:
        self._exchanges.free_slot(outer)
        self._runtime.release(outer.session)

    def _named(self, exchange: Exchange, ticket: str, said: Progress | None, number: int) -> bytes:
        """Return the answer of a call that still runs, to a client without tasks: a state, or in the end a ticket."""
        if exchange.session.revision is SESSIONLESS and number < ROUNDS:
            state = self._sessionless.seal_ticket(exchange, ticket, number + 1)
            return self._typed("input_required", {"requestState": state})
        name = exchange.request.params.get("name")
        kept = self._runtime.settings.times.task
        text = "" if said is None else said.text
        return self._encoded(exchange, ticket_result(str(name), ticket, self.collect, text, kept))

    async def _next_round(self, exchange: Exchange, after: float) -> bytes:
        """Answer a retry: with the result of the call, or with the next state."""
        exchange.began = None
        given = exchange.given
        seconds = max(after, min(after * 2.0**given.number, GROWN))
        state = await self.collecting.follow(exchange, given.ticket, seconds, seconds)
        if state.is_terminal:
            return self.collecting.result_of(exchange, state)
        return self._named(exchange, given.ticket, _said(state), given.number)

    # The tool

    async def _collect(self, exchange: Exchange) -> bytes:
        """Answer a call of the tool that collects."""
        exchange.began = None
        arguments = exchange.request.params.get("arguments")
        arguments = arguments if type(arguments) is dict else {}
        ticket, cancels = read_ticket(arguments.get("ticket")), arguments.get("cancel") is True
        limit = self.limit(exchange.session.record.client)
        wait = arguments.get("wait", limit)
        if isinstance(wait, bool) or not isinstance(wait, int | float):
            raise InvalidParams("Invalid params: wait is a number of seconds")
        if ticket is None:
            return self._encoded(exchange, told(UNKNOWN_TICKET, is_error=True))
        try:
            if cancels:
                self._tasks.check(ticket, exchange.caller)
                await self._tasks.cancel(ticket, exchange.caller.key)
            state = await self.collecting.follow(exchange, ticket, min(limit, max(0.0, wait)), limit)
        except UnknownTask:
            return self._encoded(exchange, told(UNKNOWN_TICKET, is_error=True))
        if state.is_terminal and not (cancels and state.status is TaskStatus.CANCELLED):
            return self.collecting.result_of(exchange, state)
        kept = self._runtime.settings.times.task
        running = ticket_result("", ticket, self.collect, state.message, kept)
        return self._encoded(exchange, told(_CANCELLED) if state.is_terminal else running)

    def _encoded(self, exchange: Exchange, result: CallToolResult) -> bytes:
        """Return a result in the format of the client's revision."""
        revision = exchange.session.revision
        if revision is not SESSIONLESS:
            return encode(fit(revision.name, result))
        members = {name: value for name, value in msgspec.to_builtins(result).items() if name != "_meta"}
        typed = typed_result("complete", self._runtime.back.server_info, members)
        return encode({**typed, "_meta": {**typed["_meta"], **(result.meta or {})}})

    def _typed(self, kind: str, members: dict[str, Any]) -> bytes:
        return encode(typed_result(kind, self._runtime.back.server_info, members))

    # Lists and descriptions

    async def _list(self, exchange: Exchange) -> bytes:
        """Return the list of the back, with the tool that collects, and with the output schemas of slow tools."""
        page: dict[str, Any] = msgspec.json.decode(await self._handle(exchange))
        client, tools = exchange.session.record.client, page.get("tools")
        if type(tools) is not list:
            return encode(page)
        listed = [self._listed(tool, exchange) for tool in tools if not self._note_clash(tool)]
        if not page.get("nextCursor"):
            listed.append(collect_tool(self.collect, self.limit(client)))
        # It depends on the client: others must not share it.
        private = {"cacheScope": "private"} if "cacheScope" in page else {}
        return encode({**page, "tools": listed, **private})

    def _note_clash(self, tool: Any) -> bool:
        """Report once that another tool has the name of ours, which wins. True if this one has it."""
        clashes = type(tool) is dict and tool.get("name") == self.collect
        if clashes and not self._clashed:
            self._clashed = True
            self._runtime.observer.note("tool.hidden", tool=self.collect)
        return clashes

    def _listed(self, tool: Any, exchange: Exchange) -> Any:
        """Return a tool whose output schema allows a ticket, if its calls may be answered with one."""
        schema = tool.get("outputSchema") if type(tool) is dict else None
        if type(schema) is not dict or _takes_tasks(exchange):
            return tool
        is_slow = self.after(tool.get("name"), exchange.session.record.client) is not None
        return {**tool, "outputSchema": with_ticket(schema)} if is_slow else tool

    async def _discover(self, exchange: Exchange) -> bytes:
        """Return the description of the back, with tasks."""
        found: dict[str, Any] = msgspec.json.decode(await self._handle(exchange))
        capabilities = found.get("capabilities") or {}
        extensions = {**(capabilities.get("extensions") or {}), TASKS: {}}
        return encode({**found, "capabilities": {**capabilities, "extensions": extensions}})

    # Tasks: of a server behind, or ours

    async def _task(self, exchange: Exchange) -> bytes:
        """Answer a request for a task of ours; the back answers for others."""
        task_id = exchange.request.params.get("taskId")
        if type(task_id) is not str or not await self._tasks.known([task_id], exchange.caller.key):
            return await self._handle(exchange)
        exchange.began = None
        result = await task_requests.answer(self._tasks, exchange)
        return self._typed("complete", msgspec.json.decode(encode(result)))


def _asks(outer: Exchange) -> bool:
    """True if no connection waits for a call without a session: the client was asked, and comes back with a retry."""
    writer = outer.writer
    return isinstance(writer, RoundWriter) and (writer.is_parked or bool(writer.asks))


def _takes_tasks(exchange: Exchange) -> bool:
    """True if the client accepts a task as the answer to this request."""
    client = exchange.session
    return client.revision is SESSIONLESS and declares_tasks(client.record.capabilities)


def _said(state: TaskState) -> Progress | None:
    return Progress(0.0, None, state.message) if state.message else None


async def _stop(handler: asyncio.Task[bytes]) -> None:
    """Stop a handler, and wait until it is over: it uses its slot until then."""
    handler.cancel()
    while not handler.done():
        try:
            await asyncio.wait({handler})
        except asyncio.CancelledError:
            handler.cancel()
