"""What a handler may do while it answers: tell progress, log, ask the client, keep state.

Functions get it by annotating a parameter as `Context`. Cancellation is asyncio's: a cancelled
handler sees CancelledError at its next await.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, overload

import msgspec

from holdfast.auth import Principal
from holdfast.engine.exchange import Exchange
from holdfast.errors import AskError, CapabilityMissing, NoBackChannel
from holdfast.protocol.types import (
    ClientCapabilities,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitURLParams,
    ListRootsResult,
    LoggingLevel,
    Meta,
    ProgressParams,
    ProgressToken,
    RequestId,
    Root,
)
from holdfast.server.blocking import BlockingContext
from holdfast.server.elicitation import Elicited, answer, form, form_for
from holdfast.server.sampling import SamplingOptions, check_sampling, sampling_params
from holdfast.server.session_view import SessionView, log_params
from holdfast.server.signature import ContextBase
from holdfast.server.state import State

if TYPE_CHECKING:
    from holdfast.server.app import Server

T = TypeVar("T")
NO_META: Final[Meta] = {}


class Context(ContextBase):
    """One request, seen from its handler.

    Asks raise `CapabilityMissing` before anything is sent when the client did not declare what
    they need, `AskRefused` when it answers with an error, `AskTimeout` when it does not answer
    in time (`Limits.ask_seconds`, or the ask's own `timeout`), `NoBackChannel` where the answer
    is one plain JSON body. Uncaught in a tool, their text becomes a failed result.

    Plain functions run in worker threads. There, use `ctx.sync`, whose methods do the same and
    block; and read `ctx.cancelled` in long loops, because nobody can stop a thread from outside:
    a plain function that was cancelled or timed out runs on to its end, or to its next use of
    `ctx.sync`, and its result is dropped.
    """

    __slots__ = ("_done", "_exchange", "_owner", "server")

    def __init__(self, exchange: Exchange, server: "Server", owner: "Server") -> None:
        self._exchange = exchange
        self._owner = owner
        self._done: float | None = None
        self.server = server
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
        """The client's session."""
        return SessionView(self._exchange.session, self.server)

    @property
    def state(self) -> State:
        """The session's state."""
        return State(
            self._exchange.store, self.server.engine.runtime.random, self._exchange.session.record.key
        )

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
        """Tell how far the work is; nothing where the client did not ask for it.

        Progress only goes up: the specification forbids sending what is not more than before, so that is left out.
        """
        token = self._progress_token
        if token is None or (self._done is not None and done <= self._done):
            return
        self._done = done
        params = ProgressParams(progress_token=token, progress=done, total=total, message=message)
        await self._tell("notifications/progress", params)

    @property
    def _progress_token(self) -> ProgressToken | None:
        token = self.meta.get("progressToken")
        return token if type(token) in (int, str) else None

    async def log(self, level: LoggingLevel, data: object, logger: str | None = None) -> None:
        """Send the client a log message: any JSON value.

        What is below the level that the client set is left out; one that set none gets `info` and above.
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

        For long work behind impatient proxies. Nothing where the client's revision does not allow it.
        """
        await self._exchange.close_stream()

    async def _tell(self, method: str, params: object) -> None:
        try:
            await self._exchange.notify(method, params)
        except NoBackChannel:
            # Always-JSON: the answer has no room for anything beside the result, which matters more.
            return

    # Asking

    async def sample(
        self, messages: object, *, timeout: float | None = None, **options: Unpack[SamplingOptions]
    ) -> CreateMessageResult:
        """Ask the client's model for a completion.

        `messages` is a text, a `Message`, `SamplingMessage`, `Image` or `Audio`, or a list of them.
        """
        params = sampling_params(messages, options)
        check_sampling(self._capabilities, params, self._exchange.session.record.version)
        return await self._ask("sampling/createMessage", params, CreateMessageResult, timeout)

    @overload
    async def elicit(
        self, message: str, shape: dict[str, Any], *, timeout: float | None = None
    ) -> Elicited[dict[str, Any]]: ...
    @overload
    async def elicit(self, message: str, shape: type[T], *, timeout: float | None = None) -> Elicited[T]: ...
    async def elicit(self, message: str, shape: Any, *, timeout: float | None = None) -> Elicited[Any]:
        """Ask the user to fill in a form.

        `shape` is a pydantic model, dataclass, TypedDict, or a JSON schema. Never ask for secrets
        this way: that is what `elicit_url` is for.

        Raises:
            TypeError: the shape is not flat.
            AskError: the answer does not fit it.
        """
        asked = form(shape)
        if not self._capabilities.elicits_form:
            raise CapabilityMissing(
                "the client cannot show forms: it did not declare the capability `elicitation`"
            )
        schema = form_for(self._exchange.session.record.version, asked.schema)
        params = ElicitFormParams(message=message, requested_schema=schema)
        result = await self._ask("elicitation/create", params, ElicitResult, timeout)
        data = answer(asked, result.content) if result.action == "accept" else None
        return Elicited(result.action, data)

    async def elicit_url(
        self, message: str, url: str, *, elicitation_id: str | None = None, timeout: float | None = None
    ) -> Elicited[None]:
        """Ask the user to open a page, for what must not pass through the client.

        Acceptance means the user agreed to go there. Call `session.elicitation_complete` with the
        returned id once they are done.
        """
        if not self._capabilities.elicits_url:
            raise CapabilityMissing("the client cannot open pages: it did not declare `elicitation.url`")
        name = elicitation_id or self.server.engine.runtime.random.token(12)
        params = ElicitURLParams(message=message, url=url, elicitation_id=name)
        result = await self._ask("elicitation/create", params, ElicitResult, timeout)
        return Elicited(result.action, None, name)

    async def roots(self, *, timeout: float | None = None) -> list[Root]:
        """Ask which places of its file system the client works in."""
        if self._capabilities.roots is None:
            raise CapabilityMissing("the client has no roots: it did not declare the capability `roots`")
        return (await self._ask("roots/list", {}, ListRootsResult, timeout)).roots

    @property
    def _capabilities(self) -> ClientCapabilities:
        return ClientCapabilities.from_wire(self._exchange.session.record.capabilities)

    async def _ask(self, method: str, params: object, kind: type[T], timeout: float | None) -> T:
        result = await self._exchange.ask(method, params, timeout=timeout)
        try:
            return msgspec.convert(result, kind)
        except msgspec.ValidationError as error:
            raise AskError(f"the client's answer to {method} is malformed: {error}") from error
