"""The calls of one upstream: each waits for turn and slot, goes to the server, and returns in the client's era.

    run ──▶ a kept list? (lists.py) ──▶ turn and slot (turns.py), if there are any ──▶ Call.run ──▶ Connection

A request of our own, such as a subscription, is a `control`: it has no exchange and no slot, and the deadline of a
call.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from limpet.backs.proxy.call import Call, silent, unreachable, unusable
from limpet.backs.proxy.headers import CallHeaders, Mirrors
from limpet.backs.proxy.lists import Key as ListKey
from limpet.backs.proxy.lists import Lists, list_key
from limpet.backs.proxy.options import ProxyOptions
from limpet.backs.proxy.outbox import Space
from limpet.backs.proxy.questions import Questions
from limpet.backs.proxy.silence import Silence
from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.backs.proxy.translation import SessionlessForm, error_for, for_sessions
from limpet.backs.proxy.turns import UpstreamTurns
from limpet.engine.exchange import Exchange
from limpet.engine.slots import Slots
from limpet.errors import BadAnswer, ClientError, McpError, NotSent
from limpet.ports import Ports
from limpet.protocol.subscriptions import LISTS, Kind
from limpet.protocol.versions import SESSIONLESS
from limpet.upstream.connection import Connection
from limpet.upstream.negotiation import Agreed


class Calls:
    """The calls of one upstream. Call `use` first, and after each negotiation."""

    _agreed: Agreed
    _form: SessionlessForm

    def __init__(
        self,
        connection: Connection,
        target: Target,
        client: UpstreamClient,
        questions: Questions,
        options: ProxyOptions,
        space: Space,
        ports: Ports,
        lists: Lists,
    ) -> None:
        self.running: set[Call] = set()
        """The calls that the server has."""
        self.used_at: float = 0.0
        """When the last one ended."""
        self._waiting = 0
        self._unused: asyncio.Event | None = None
        self._connection = connection
        self._client = client
        self._questions = questions
        self._turns: UpstreamTurns | None = questions.turns
        self._slots = Slots(options.concurrency, options.queued) if options.concurrency else None
        self._silence = Silence(options.call_seconds)
        self._space = space
        self._clock, _, self._observer = ports
        self._lists = lists
        self._mirrors = Mirrors(self._tools, self._observer)
        self._all_headers = CallHeaders(target, client, self._mirrors)
        self._headers: CallHeaders | None = None
        """None if no call has headers."""
        self._is_sessionless = False
        self._had_standalone = False

    def use(self, agreed: Agreed) -> None:
        """Speak as it was negotiated."""
        self._agreed = agreed
        self._is_sessionless = agreed.is_sessionless
        self._form = SessionlessForm(agreed.server)
        are_needed = self._all_headers.are_needed(sessionless=agreed.is_sessionless)
        self._headers = self._all_headers if are_needed else None

    def changed(self, kind: Kind) -> None:
        """Forget a list of the server: it has changed."""
        self._lists.changed(kind)
        if kind == "tools":
            self._mirrors.forget()

    @property
    def is_used(self) -> bool:
        """True if a call runs or waits."""
        return bool(self._waiting)

    async def unused(self) -> None:
        """Wait until no call runs or waits."""
        while self._waiting:
            self._unused = asyncio.Event()
            await self._unused.wait()

    def close(self) -> None:
        """Watch no call any more and keep no list: the upstream ends, and its calls with it."""
        self._silence.close()
        self._lists.clear()

    def run(self, exchange: Exchange) -> Coroutine[Any, Any, bytes]:
        """Let the server answer an exchange; return the result in the form of the client's era.

        Raises:
            McpError: the server's error, or ours in its place.
            TurnTaken: the call must run on another connection.
        """
        call = Call(
            exchange,
            silence=self._silence,
            space=self._space,
            observer=self._observer,
            outside=self._questions.outside,
            headers=self._headers,
        )
        return self._list(call) if exchange.inner.method in LISTS else self._run(call)

    async def _list(self, call: Call) -> bytes:
        request = call.exchange.inner
        key = list_key(request.method, request.params, self._all_headers.passed(call.exchange))
        if key is None:
            return await self._run(call)
        page = await self._lists.get(key, self._agreed, partial(self._page, key, call))
        return self._translated(call, page)

    def _translated(self, call: Call, result: bytes) -> bytes:
        """Return a result in the form of the client's era. The server's may have changed during the call."""
        if (call.exchange.session.revision is SESSIONLESS) is self._is_sessionless:
            return result
        method = call.exchange.inner.method
        if not result.lstrip().startswith(b"{"):
            raise unusable(BadAnswer(f"the result of {method} is not an object"))
        return for_sessions(result) if self._is_sessionless else self._form.of(method, result)

    async def _run(self, call: Call, *, is_page: bool = False) -> bytes:
        """Send a call. A page of a list is returned as the server wrote it: calls of both eras may share it."""
        self._waiting += 1
        try:
            if self._turns is not None or self._slots is not None:
                result = await self._when_admitted(call)
            else:
                self.running.add(call)
                result = await call.run(self._connection, sessionless=self._is_sessionless)
            return result if is_page else self._translated(call, result)
        except McpError as error:
            if call.exchange.session.revision is not SESSIONLESS or self._is_sessionless:
                raise
            raise error_for(call.exchange.request.method, error) from error
        finally:
            self._waiting -= 1
            if self._unused is not None and not self._waiting:
                self._unused.set()
            self.running.discard(call)
            call.is_over = True
            if self._questions.open:
                self._questions.ended(call)
            self.used_at = self._clock.now()

    async def _when_admitted(self, call: Call) -> bytes:
        """Send a call when it has its turn and its slot, if it needs them."""
        turns = self._turns if call.may_ask and self._note_standalone() else None
        slots, owner = self._slots, call.exchange.caller.owner
        if turns is not None:
            await turns.take()
        try:
            if slots is not None:
                await slots.take(owner)
            try:
                self.running.add(call)
                return await call.run(self._connection, sessionless=self._is_sessionless)
            finally:
                if slots is not None:
                    slots.release(owner)
        finally:
            if turns is not None:
                turns.release()

    def _note_standalone(self) -> bool:
        """Note whether the server has a standalone stream.

        True if it can ask without naming a call: in 2025, on pipes and on a URL's stream.
        """
        self._had_standalone = self._had_standalone or self._connection.standalone is not None
        return self._had_standalone and not self._is_sessionless

    async def _page(self, key: ListKey, call: Call) -> bytes:
        page = await self._run(call, is_page=True)
        if key[:2] == ("tools/list", "") and self._is_sessionless:
            self._mirrors.learn(page)
        return page

    async def _tools(self, cursor: str) -> bytes:
        """Return a page of the tools, for our own use."""
        params = {"cursor": cursor} if cursor else {}
        # A copy: a call with another token may come before the request is sent.
        passed = dict(self._client.passed)
        key = list_key("tools/list", params, passed)

        async def ask() -> bytes:
            return bytes(
                await self._connection.request("tools/list", params, headers=passed, may_repeat=True)
            )

        return await ask() if key is None else await self._lists.get(key, self._agreed, ask)

    async def control(self, method: str, params: dict[str, Any]) -> object:
        """Send a request of our own to the server. It has the same deadline as a call.

        Raises:
            McpError: the server's error, or ours in its place.
        """
        seconds = self._silence.seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._connection.request(method, params)
        except TimeoutError:
            raise silent(method, seconds) from None
        except NotSent as error:
            raise unreachable(error) from error
        except ClientError as error:
            raise unusable(error) from error
