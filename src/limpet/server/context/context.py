"""`Context`: the methods of a running function: report progress, log, ask the client, keep state.

A function gets it in a parameter that is annotated as `Context`. Cancellation is that of asyncio: a cancelled
function gets CancelledError at its next await.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, overload

import msgspec

from limpet.auth import Principal
from limpet.errors import AskError, NoBackChannel, NoSession
from limpet.ports import Random
from limpet.protocol.params import progress_token
from limpet.protocol.types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    LoggingLevel,
    Meta,
    ProgressParams,
    RequestId,
    Root,
)
from limpet.server.catalog.server_controls import ServerControls
from limpet.server.context.asks import ClientQuestion, FormAsk, PageAsk, RootsAsk, SamplingAsk
from limpet.server.context.elicitation import Elicited, answer
from limpet.server.context.foreign_names import FOREIGN_CONTEXT, renamed
from limpet.server.context.handles import find_handle, open_handle, principal_state
from limpet.server.context.sampling import SamplingOptions
from limpet.server.context.session_view import SessionView, log_params
from limpet.server.context.state import State
from limpet.server.context.task_calls import describe, start_task
from limpet.server.functions.signature import ContextBase
from limpet.server.host import Host

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange
    from limpet.server.context.blocking import BlockingContext
    from limpet.stores.base import StatePart

T = TypeVar("T")
NO_META: Final[Meta] = {}


class Context(ContextBase):
    """The request that a function answers.

    Asks (`sample`, `elicit`, `elicit_url`, `roots`) raise `CapabilityMissing`, before anything is sent, if
    the client did not declare the capability; `AskRefused` if the client answers with an error; `AskTimeout`
    if it does not answer in time (`Limits.ask_seconds`, or the `timeout` of the ask); `NoBackChannel` if the
    answer is one plain JSON body. If a tool does not catch them, their text becomes a failed result.

    A client of 2026-07-28 receives an ask as an `input_required` result and sends its answer with a retry. The
    function waits meanwhile, and its body runs once. After that, the request's id, `meta`, headers,
    capabilities and log level are those of the retry. `key` names an ask for such clients.

    Plain functions run in worker threads and use `ctx.sync`, whose methods block. A thread cannot be stopped
    from outside: a plain function that was cancelled or timed out runs to its end, or to its next use of
    `ctx.sync`, and its result is dropped. In long loops it should check `ctx.cancelled`.
    """

    __slots__ = ("_exchange", "_owner", "_state", "server")

    def __init__(self, exchange: Exchange, server: ServerControls, owner: Host) -> None:
        self._exchange = exchange
        self._owner = owner
        self._state: State | None = None
        self.server: ServerControls = server
        """The server that answers. In a function of an included server: the server that includes it."""

    def __repr__(self) -> str:
        return f"<Context of {self._exchange!r}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise renamed(self, name, FOREIGN_CONTEXT)

    # The request

    @property
    def request_id(self) -> RequestId:
        """The id of the request."""
        return self._exchange.request.id

    @property
    def meta(self) -> Meta:
        """The request's `_meta`; empty if the request has no `_meta`."""
        meta = self._exchange.request.params.get("_meta")
        return meta if isinstance(meta, dict) else NO_META

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP request's headers by lower-case name, or those of `Client(server, headers=…)`; empty on stdio."""
        return self._exchange.headers

    @property
    def principal(self) -> Principal | None:
        """The principal that the request is authenticated as; None for an anonymous client."""
        return self._exchange.principal

    @property
    def session(self) -> SessionView:
        """The client's session. For a client without sessions: its info, capabilities and version only."""
        return SessionView(self._exchange.session, self.server)

    @property
    def state(self) -> State:
        """The state of the session, or of the principal with `Server(state="principal")`, which works in both eras.

        With `state="conversation"` it is that of the conversation which a request of 2026-07-28 names
        (`Settings.affinity`).

        Raises:
            NoSession: the state belongs to the session, and clients of 2026-07-28 have no session. `state_for` works
                for all clients.
        """
        if self.server.settings.state == "principal":
            if self._state is None:
                ttl = self.server.settings.times.principal_state
                self._state = principal_state(self._kept, self._random, self._principal, ttl)
            return self._state
        key = self._exchange.session.record.key
        if not key and self.server.settings.state == "conversation":
            key = self._exchange.caller.conversation
        if not key:
            raise NoSession("ctx.state")
        return State(self._kept, self._random, key)

    async def new_handle(self, *, ttl: float | None = None) -> str:
        """Create state that outlives the request, and return its handle.

        Send the handle to the client in a result, and take it back as an argument. It works only for this
        caller's principal, and ends when it was not used for `ttl` seconds (default: `Times.handle`).

        Raises:
            StateError: the limit of handles is reached.
            ValueError: `ttl` is not a positive number.
        """
        seconds = self.server.settings.times.handle if ttl is None else ttl
        return await open_handle(self._kept, self._random, self._principal, seconds)

    async def state_for(self, handle: str) -> State:
        """Return the state that is kept under a handle.

        Raises:
            HandleNotFound: this caller has no state under this handle: it is unknown, expired or foreign.
        """
        return await find_handle(self._kept, self._random, self._principal, handle)

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """The client's answers to the `InputRequired` of the last round, by key; empty in the first round."""
        return self._exchange.given.answers

    @property
    def request_state(self) -> str | None:
        """The `state` of the `InputRequired` of the last round; None in the first round."""
        return self._exchange.given.state

    @property
    def _kept(self) -> StatePart:
        """The state of sessions and areas."""
        return self.server.engine.state

    @property
    def _principal(self) -> str:
        return self._exchange.session.record.principal

    @property
    def _random(self) -> Random:
        return self.server.engine.random

    @property
    def lifespan(self) -> Any:
        """The value that the server's lifespan yielded; None without a lifespan."""
        return self._owner.lifespan_value

    @property
    def cancelled(self) -> bool:
        """True if the exchange has ended, so that the result will be dropped. May be read from any thread."""
        return self._exchange.has_ended

    @property
    def sync(self) -> BlockingContext:
        """The context for plain functions, which run in threads: its methods block."""
        task = self._exchange.task
        if task is None:
            raise RuntimeError("the exchange is not running")
        from limpet.server.context.blocking import BlockingContext  # noqa: PLC0415 - it imports asyncio

        return BlockingContext(self, task)

    # Notifications

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Send progress: only if the client passed a `progressToken`; values that do not increase are dropped.

        The specification requires that progress increases. In a task, progress becomes the status message.
        """
        if self._exchange.progress is not None and done <= self._exchange.progress:
            return
        self._exchange.progress = done
        token = progress_token(self.meta)
        if await describe(self._exchange, self.server, done, total, message):
            return
        if token is None:
            self._exchange.note_progress(done, total, message)
            return
        params = ProgressParams(progress_token=token, progress=done, total=total, message=message)
        await self._notify("notifications/progress", params)

    report_progress = progress
    """The name of `progress` in FastMCP and `mcp`."""

    async def log(self, level: LoggingLevel, data: object, logger: str | None = None) -> None:
        """Send the client a log message with any JSON value.

        Messages below the client's level are dropped. The default level is `info` in a session; in 2026-07-28
        each request sets its level, and a request without one gets no messages.

        Raises:
            ValueError: the level is unknown.
        """
        params = log_params(self._exchange.session, level, data, logger)
        if params is not None:
            await self._notify("notifications/message", params)

    async def debug(self, data: object, logger: str | None = None) -> None:
        """Send a log message of level `debug`."""
        await self.log("debug", data, logger)

    async def info(self, data: object, logger: str | None = None) -> None:
        """Send a log message of level `info`."""
        await self.log("info", data, logger)

    async def warning(self, data: object, logger: str | None = None) -> None:
        """Send a log message of level `warning`."""
        await self.log("warning", data, logger)

    async def error(self, data: object, logger: str | None = None) -> None:
        """Send a log message of level `error`."""
        await self.log("error", data, logger)

    async def resource_updated(self, uri: str) -> None:
        """Notify every client that subscribed to this resource, in both eras."""
        await self.server.resource_updated(uri)

    async def close_stream(self) -> None:
        """End the connection of this request now. The client reconnects and receives the rest, which is stored.

        Use it for long work behind proxies that cut long responses. It has no effect if the client's revision
        does not allow it; for clients of 2026-07-28 use `Times.continue_after`.
        """
        await self._exchange.close_stream()

    async def start_task(self) -> bool:
        """Turn this call into a task: the client receives the task now, and requests its result later.

        Use it in tools that are registered with `task_by_hand`. Asks before it belong to the call, asks after
        it to the task. Returns False, without effect, if the client does not support tasks.

        Raises:
            RuntimeError: the tool is not registered with `task`.
            Busy: the limit of tasks is reached.
        """
        return await start_task(self._exchange, self.server)

    async def _notify(self, method: str, params: object) -> None:
        try:
            await self._exchange.notify(method, params)
        except NoBackChannel:
            # Always-JSON mode: the response holds only the result, so notifications are dropped.
            return

    # Asks

    async def sample(
        self,
        messages: object,
        *,
        timeout: float | None = None,
        key: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> CreateMessageResult:
        """Ask the client's model to generate a message.

        `messages` is a text, a `Message`, `SamplingMessage`, `Image` or `Audio`, a dict with `role` and
        `content`, or a list of them.

        Raises:
            TypeError: `messages` has another type, or an option is unknown.
        """
        return await self._ask(SamplingAsk(messages, options), CreateMessageResult, timeout, key)

    @overload
    async def elicit(
        self, message: str, shape: dict[str, Any], *, timeout: float | None = None, key: str | None = None
    ) -> Elicited[dict[str, Any]]: ...
    @overload
    async def elicit(
        self, message: str, shape: list[str], *, timeout: float | None = None, key: str | None = None
    ) -> Elicited[str]: ...
    @overload
    async def elicit(
        self, message: str, shape: type[T], *, timeout: float | None = None, key: str | None = None
    ) -> Elicited[T]: ...
    async def elicit(
        self, message: str, shape: Any, *, timeout: float | None = None, key: str | None = None
    ) -> Elicited[Any]:
        """Ask the user to fill in a form.

        `shape` is a pydantic model, dataclass, TypedDict, or a JSON schema. For one value it is `bool`, `int`, `float`,
        `str`, an enum of texts, or a list of texts to choose from. Do not ask for secrets in a form: use `elicit_url`.

        Raises:
            TypeError: the shape is not flat.
            AskError: the answer does not match the shape.
        """
        wanted = FormAsk(message, shape)
        result = await self._ask(wanted, ElicitResult, timeout, key)
        data = answer(wanted.form, result.content) if result.action == "accept" else None
        return Elicited(result.action, data)

    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        timeout: float | None = None,
        key: str | None = None,
    ) -> Elicited[None]:
        """Ask the user to open a page, for data that must not pass through the client.

        "accept" means that the user agreed to open the page. When the user has finished there, call
        `session.elicitation_complete` with the returned id.
        """
        name = elicitation_id or self._random.token(12)
        result = await self._ask(PageAsk(message, url, name), ElicitResult, timeout, key)
        return Elicited(result.action, None, name)

    async def roots(self, *, timeout: float | None = None, key: str | None = None) -> list[Root]:
        """Ask for the directories that the client works in."""
        return (await self._ask(RootsAsk(), ListRootsResult, timeout, key)).roots

    async def _ask(self, wanted: ClientQuestion, kind: type[T], timeout: float | None, key: str | None) -> T:
        params = wanted.params(self._exchange.session, lambda: self._random.token(12))
        result = await self._exchange.ask(wanted.method, params, timeout=timeout, key=key)
        try:
            return msgspec.convert(result, kind)
        except msgspec.ValidationError as error:
            raise AskError(f"the client's answer to {wanted.method} is malformed: {error}") from error


def parts_of(ctx: Context) -> tuple[Exchange, ServerControls, Host]:
    """Return the arguments that make an equal context."""
    return ctx._exchange, ctx.server, ctx._owner
