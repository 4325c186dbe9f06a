"""What a handler may do while it answers: tell progress, log, ask the client, keep state.

Functions get it by annotating a parameter as `Context`. Cancellation is asyncio's: a cancelled
handler sees CancelledError at its next await.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar, Unpack, overload

import msgspec

from holdfast.auth import Principal
from holdfast.engine.exchange import Exchange
from holdfast.errors import AskError, NoBackChannel, NoSession
from holdfast.ports import Random
from holdfast.protocol.types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    LoggingLevel,
    Meta,
    ProgressParams,
    ProgressToken,
    RequestId,
    Root,
)
from holdfast.server.catalog.server_controls import ServerControls
from holdfast.server.context.asks import Ask, FormAsk, PageAsk, RootsAsk, SamplingAsk
from holdfast.server.context.blocking import BlockingContext
from holdfast.server.context.elicitation import Elicited, answer
from holdfast.server.context.handles import find_handle, open_handle, principal_state
from holdfast.server.context.sampling import SamplingOptions
from holdfast.server.context.session_view import SessionView, log_params
from holdfast.server.context.state import State
from holdfast.server.context.task_calls import describe, start_task
from holdfast.server.functions.signature import ContextBase
from holdfast.server.host import Host

T = TypeVar("T")
NO_META: Final[Meta] = {}


class Context(ContextBase):
    """One request, seen from its handler.

    Asks raise `CapabilityMissing` before anything is sent when the client did not declare what
    they need, `AskRefused` when it answers with an error, `AskTimeout` when it does not answer
    in time (`Limits.ask_seconds`, or the ask's own `timeout`), `NoBackChannel` where the answer
    is one plain JSON body. Uncaught in a tool, their text becomes a failed result.

    A client of 2026-07-28 is asked by an answer that wants input, and goes on with a retry: the
    handler waits meanwhile, and its body runs once. From then on the request's id, `meta`,
    headers, capabilities and log level are the retry's. `key` names an ask for such clients.

    Plain functions run in worker threads. There, use `ctx.sync`, whose methods do the same and
    block; and read `ctx.cancelled` in long loops, because nobody can stop a thread from outside:
    a plain function that was cancelled or timed out runs on to its end, or to its next use of
    `ctx.sync`, and its result is dropped.
    """

    __slots__ = ("_done", "_exchange", "_owner", "_state", "server")

    def __init__(self, exchange: Exchange, server: ServerControls, owner: Host) -> None:
        self._exchange = exchange
        self._owner = owner
        self._done: float | None = None
        self._state: State | None = None
        self.server: ServerControls = server
        """The server that answers; of an included one, the one that includes it."""

    def __repr__(self) -> str:
        return f"<Context of {self._exchange!r}>"

    # The request

    @property
    def request_id(self) -> RequestId:
        """The id the client gave its request."""
        return self._exchange.request.id

    @property
    def meta(self) -> Meta:
        """The request's `_meta`, empty where it has none."""
        meta = self._exchange.request.params.get("_meta")
        return meta if isinstance(meta, dict) else NO_META

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP request's headers by lower-case name; empty on other transports."""
        return self._exchange.headers

    @property
    def principal(self) -> Principal | None:
        """Who the client is authenticated as; None for an anonymous one."""
        return self._exchange.principal

    @property
    def session(self) -> SessionView:
        """The client's session; of a client that has none, what it says of itself."""
        return SessionView(self._exchange.session, self.server)

    @property
    def state(self) -> State:
        """The session's state; the principal's own with `Server(state="principal")`, which works in both eras.

        Raises:
            NoSession: it is the session's, and the client has none (2026-07-28); `state_for` works with all.
        """
        if self.server.settings.state == "principal":
            if self._state is None:
                ttl = self.server.settings.times.principal_state
                self._state = principal_state(self._exchange, self._random, ttl)
            return self._state
        key = self._exchange.session.record.key
        if not key:
            raise NoSession("ctx.state")
        return State(self._exchange.store, self._random, key)

    async def new_handle(self, *, ttl: float | None = None) -> str:
        """Begin state that outlives the request and return the handle it is kept under.

        Give the handle to the client in a result, and take it back as an argument. It works for
        this caller's principal only, until nobody has used it for `ttl` seconds (`Times.handle`).

        Raises:
            StateError: there are too many.
        """
        return await open_handle(self._exchange, self._random, ttl, self.server.settings.times.handle)

    async def state_for(self, handle: str) -> State:
        """Return the state kept under a handle.

        Raises:
            HandleNotFound: there is none for this caller: unknown, expired and foreign are the same.
        """
        return await find_handle(self._exchange, self._random, handle)

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """The client's answers to the `InputRequired` that was returned before, by key; empty in the first round."""
        return self._exchange.given.answers

    @property
    def request_state(self) -> str | None:
        """The state of the `InputRequired` that was returned before; None in the first round."""
        return self._exchange.given.state

    @property
    def _random(self) -> Random:
        return self.server.engine.random

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan yielded; None without one."""
        return self._owner.lifespan_value

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more. May be read from any thread."""
        return self._exchange.settled

    @property
    def sync(self) -> BlockingContext:
        """The same for plain functions, which run in threads: methods that block."""
        task = self._exchange.task
        if task is None:
            raise RuntimeError("the exchange is not running")
        return BlockingContext(self, task)

    # Telling

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell how far the work is; nothing where the client did not ask for it. A task's status message says it.

        Progress only goes up: the specification forbids sending what is not more than before, so that is left out.
        """
        if self._done is not None and done <= self._done:
            return
        self._done = done
        token = self._progress_token
        if await describe(self._exchange, done, total, message) or token is None:
            return
        params = ProgressParams(progress_token=token, progress=done, total=total, message=message)
        await self._tell("notifications/progress", params)

    @property
    def _progress_token(self) -> ProgressToken | None:
        token = self.meta.get("progressToken")
        return token if type(token) in (int, str) else None

    async def log(self, level: LoggingLevel, data: object, logger: str | None = None) -> None:
        """Send the client a log message: any JSON value.

        What is below the level that the client set is left out. One that set none gets `info` and
        above in a session, and nothing at all in 2026-07-28, where each request sets its own.
        """
        params = log_params(self._exchange.session, level, data, logger)
        if params is not None:
            await self._tell("notifications/message", params)

    async def debug(self, data: object, logger: str | None = None) -> None:
        """Log for debugging."""
        await self.log("debug", data, logger)

    async def info(self, data: object, logger: str | None = None) -> None:
        """Log for information."""
        await self.log("info", data, logger)

    async def warning(self, data: object, logger: str | None = None) -> None:
        """Log a warning."""
        await self.log("warning", data, logger)

    async def error(self, data: object, logger: str | None = None) -> None:
        """Log an error."""
        await self.log("error", data, logger)

    async def resource_updated(self, uri: str) -> None:
        """Tell every client that subscribed to this resource, in either era."""
        await self.server.resource_updated(uri)

    async def close_stream(self) -> None:
        """End this request's connection now; the client comes back for the rest, which is kept.

        For long work behind impatient proxies. Nothing where the client's revision does not allow
        it; clients of 2026-07-28 are what `Times.continue_after` is for.
        """
        await self._exchange.close_stream()

    async def start_task(self) -> bool:
        """From here on this call is a task: its client has the answer, and comes for the result.

        For tools registered with `task_by_hand`. What they ask before is asked in the call itself,
        what they ask after in the task. False where the client takes no tasks: then nothing changes.

        Raises:
            RuntimeError: the tool is not registered with `task`.
            Busy: there are too many tasks.
        """
        return await start_task(self._exchange, self.server)

    async def _tell(self, method: str, params: object) -> None:
        try:
            await self._exchange.notify(method, params)
        except NoBackChannel:
            # Always-JSON: the answer has no room for anything beside the result, which matters more.
            return

    # Asking

    async def sample(
        self,
        messages: object,
        *,
        timeout: float | None = None,
        key: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> CreateMessageResult:
        """Ask the client's model for a completion.

        `messages` is a text, a `Message`, `SamplingMessage`, `Image` or `Audio`, a dict with `role` and
        `content`, or a list of them.

        Raises:
            TypeError: it is anything else.
        """
        return await self._ask(SamplingAsk(messages, options), CreateMessageResult, timeout, key)

    @overload
    async def elicit(
        self, message: str, shape: dict[str, Any], *, timeout: float | None = None, key: str | None = None
    ) -> Elicited[dict[str, Any]]: ...
    @overload
    async def elicit(
        self, message: str, shape: type[T], *, timeout: float | None = None, key: str | None = None
    ) -> Elicited[T]: ...
    async def elicit(
        self, message: str, shape: Any, *, timeout: float | None = None, key: str | None = None
    ) -> Elicited[Any]:
        """Ask the user to fill in a form.

        `shape` is a pydantic model, dataclass, TypedDict, or a JSON schema. Never ask for secrets
        this way: that is what `elicit_url` is for.

        Raises:
            TypeError: the shape is not flat.
            AskError: the answer does not fit it.
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
        """Ask the user to open a page, for what must not pass through the client.

        Acceptance means the user agreed to go there. Call `session.elicitation_complete` with the
        returned id once they are done.
        """
        name = elicitation_id or self._random.token(12)
        result = await self._ask(PageAsk(message, url, name), ElicitResult, timeout, key)
        return Elicited(result.action, None, name)

    async def roots(self, *, timeout: float | None = None, key: str | None = None) -> list[Root]:
        """Ask which places of its file system the client works in."""
        return (await self._ask(RootsAsk(), ListRootsResult, timeout, key)).roots

    async def _ask(self, wanted: Ask, kind: type[T], timeout: float | None, key: str | None) -> T:
        params = wanted.params(self._exchange.session, lambda: self._random.token(12))
        result = await self._exchange.ask(wanted.method, params, timeout=timeout, key=key)
        try:
            return msgspec.convert(result, kind)
        except msgspec.ValidationError as error:
            raise AskError(f"the client's answer to {wanted.method} is malformed: {error}") from error
