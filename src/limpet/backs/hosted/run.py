"""One run of a hosted object, as a duplex.

The run gets two streams (`streams.py`). It writes by calling `send` of one of them, in the task of the code that
writes. So we know the call of each message:

    1. the message names its call (`related_request_id`);
    2. or the context of the task names it: `mcp` 1 has a context variable for the request that it handles; `mcp` 2 runs
       a handler in the context that came with the request (`last_context` of the stream), where we set our own
       variable;
    3. or the message belongs to no call: code of the lifespan, or a task that has outlived its call, wrote it.

A message that belongs to no call gets `_no_call` as its origin, which is never None: the user of the link does not
have to guess.
"""

import asyncio
import contextlib
import contextvars
import math
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final

from typing_extensions import override

from limpet.backs.hosted.identity import HostedIdentity, PresentUser, caller_of
from limpet.backs.hosted.streams import Delivery, RunInput, RunOutput
from limpet.engine.caller import Caller
from limpet.engine.slots import Slots
from limpet.errors import BadAnswer, Broken, NotSent
from limpet.ports import Observer
from limpet.transports.threads import OWNER
from limpet.upstream.duplex_link import DuplexLink
from limpet.upstream.link import Receiver, UpstreamLink
from limpet.upstream.pending import OutgoingRequest
from limpet.wire.jsonrpc import request_message

# The threads of hosted objects, given to clients in turn.
#
# The frameworks run plain functions with `anyio.to_thread.run_sync`. The default limiter of the event loop gives its
# tokens (40) to these functions in the order of arrival, so one client could take all of them. Here a function waits
# for its turn first, and then takes a token. The threads stay those of anyio, which also ends or awaits the functions
# at the end of the program.
#
# A limiter cannot be exchanged by the public interface of anyio, and it may be in use. So the existing one gets a
# subclass of its class, which differs in the two methods that all others use.


def share_threads(anyio: Any) -> None:
    """Let the functions of the running loop's default limiter wait in turn by `OWNER`. Does nothing the second time."""
    limiter = anyio.to_thread.current_default_thread_limiter()
    base: Any = type(limiter)
    if hasattr(base, "is_shared_in_turn") or math.isinf(limiter.total_tokens):
        return
    slots = Slots(int(limiter.total_tokens), sys.maxsize)
    owners: dict[object, str] = {}

    class InTurn(base):  # type: ignore[misc]
        """The limiter of one event loop."""

        __slots__ = ()
        is_shared_in_turn = True

        async def acquire_on_behalf_of(self, borrower: object) -> None:
            owner = OWNER.get()
            await slots.take(owner)
            try:
                await super().acquire_on_behalf_of(borrower)
            except BaseException:
                slots.release(owner)
                raise
            owners[borrower] = owner

        def release_on_behalf_of(self, borrower: object) -> None:
            super().release_on_behalf_of(borrower)
            # A token that was taken before has no owner.
            if (owner := owners.pop(borrower, None)) is not None:
                slots.release(owner)

    limiter.__class__ = InTurn


STOP_SECONDS: Final = 5.0
"""How long a run may take to end after its input has ended. Then it is cancelled."""
_CALL: Final[contextvars.ContextVar[OutgoingRequest | None]] = contextvars.ContextVar(
    "limpet_hosted_call", default=None
)


class Dialect:
    """The message types of the installed version of `mcp`, and how it runs an object."""

    def __init__(self, major: int, *, in_sessions: bool) -> None:
        message_module = import_module("mcp.shared.message")
        self._wrap: Callable[..., Any] = message_module.SessionMessage
        self._metadata: Callable[..., Any] = message_module.ServerMessageMetadata
        self.identity: HostedIdentity = HostedIdentity()
        types = import_module("mcp.types" if major == 1 else "mcp_types")
        self._request: Callable[..., Any] = types.JSONRPCRequest.model_validate_json
        self._serve_session: Callable[..., Awaitable[None]] | None = None
        self._usual_run: object = import_module("mcp.server.lowlevel").Server.run
        if major == 1:
            self._decode: Callable[[bytes], Any] = lambda data: (
                types.JSONRPCMessage.model_validate_json(data).root
            )
            self._envelope: Callable[[Any], Any] = types.JSONRPCMessage
            self._dumped = {"by_alias": True, "exclude_none": True}
            self._request_context = import_module("mcp.server.lowlevel.server").request_ctx
        else:
            self._decode = lambda data: types.jsonrpc_message_adapter.validate_json(data, by_name=False)
            self._envelope = lambda message: message
            self._dumped = {"by_alias": True, "exclude_unset": True}
            self._request_context = None
            if in_sessions:
                with contextlib.suppress(ImportError):
                    self._serve_session = getattr(import_module("mcp.server.runner"), "serve_loop", None)

    async def run(self, server: Any, read: RunInput, write: RunOutput) -> None:
        """Let an object serve one client, until its input ends.

        `run` of `mcp` 2 reads the first message to learn the era, and from then on passes each message from one task to
        another. Its own HTTP server, which knows the era, calls `serve_loop` for a session, and so do we; not for an
        object with a `run` of its own.
        """
        options = server.create_initialization_options()
        if self._serve_session is None or getattr(server.run, "__func__", None) is not self._usual_run:
            await server.run(read, write, options)
            return
        async with server.lifespan(server) as state:
            await self._serve_session(server, read, write, lifespan_state=state, init_options=options)

    def decode(self, data: bytes) -> Any:
        """Return a message of the framework: a notification or a response."""
        return self._decode(data)

    def request(self, request: OutgoingRequest) -> Any:
        """Return a request as a message of the framework."""
        return self._request(request_message(request.id, request.method, request.params))

    def wrap(self, message: Any, caller: Caller | None) -> Any:
        """Return a message for the run, with the HTTP request of the client that caused it."""
        request = self.identity.request(caller)
        metadata = self._metadata(request_context=request) if request is not None else None
        return self._wrap(self._envelope(message), metadata)

    def user_of_run(self, caller: Caller | None) -> Any:
        """Return the user for the context of a run; None if the request has no user."""
        user = self.identity.user(caller)
        if user is None or self._request_context is None:
            return user
        return PresentUser(user, self._request_context)

    def encode(self, item: Any) -> bytes:
        """Return the bytes of a message of the run."""
        return bytes(item.message.model_dump_json(**self._dumped), "utf-8")

    def answered(self, item: Any) -> int | str | None:
        """Return the id of the request that a message of the run answers; None if it is not a response."""
        message = getattr(item.message, "root", item.message)
        return None if hasattr(message, "method") else message.id

    def call_id(self, item: Any) -> int | str | None:
        """Return the id of the request that a message of the run belongs to; None: it is not named."""
        named: int | str | None = getattr(item.metadata, "related_request_id", None)
        if named is None and self._request_context is not None:
            named = getattr(self._request_context.get(None), "request_id", None)
        return named


class HostedRun:
    """Our end of one run. The run's messages go directly to the receiver of `link`."""

    def __init__(
        self,
        server: Any,
        dialect: Dialect,
        receiver: Receiver,
        context: contextvars.Context,
        observer: Observer,
    ) -> None:
        self.link: UpstreamLink | None = None
        """The link over this duplex."""
        self._anyio = import_module("anyio")
        share_threads(self._anyio)
        self._server = server
        self._dialect = dialect
        self._receiver = receiver
        self._context = context
        self._observer = observer
        self._no_call = OutgoingRequest(0, "", {})
        self.input: RunInput = RunInput(self._delivery, self._anyio.EndOfStream)
        self._failure: BaseException | None = None
        self._run = asyncio.get_running_loop().create_task(
            self._serve(), name="limpet hosted run", context=context.copy()
        )

    @property
    def exit_status(self) -> None:
        """There is no process."""
        return

    @property
    def last_words(self) -> str:
        """How the run ended, if it failed."""
        return f"its run failed: {self._failure!r}" if self._failure is not None else "it is a hosted object"

    async def read(self) -> bytes:
        """Wait for the end of the run: its messages do not come this way."""
        await asyncio.wait({self._run})
        return b""

    def put(self, request: OutgoingRequest) -> None:
        """Let the run take a request.

        Raises:
            NotSent: the run has ended.
        """
        if self.input.is_closed:
            raise NotSent(str(self._ended()))
        self.input.put(request)

    async def write(self, message: bytes) -> None:
        """Wait until the run takes a notification, or a response.

        Raises:
            NotSent: the framework does not accept the message.
            Broken: the run has ended.
        """
        try:
            decoded = self._dialect.decode(message)
        except ValueError as error:
            raise NotSent(f"{self._server.name} does not accept the message: {error}") from error
        context = self._context.copy()
        context.run(_CALL.set, None)
        if not await self.input.write((context, self._dialect.wrap(decoded, None))):
            raise self._ended()

    def _delivery(self, request: OutgoingRequest) -> Delivery | None:
        """Return a request as the run gets it; None if the framework does not accept it, or its user."""
        try:
            return self._deliver(request)
        except ValueError as error:
            request.fail(NotSent(f"{self._server.name} does not accept the message: {error}"))
        except Exception as error:  # noqa: BLE001 - here, in the task of the run, it would end all calls
            request.fail(error)
        return None

    def _deliver(self, request: OutgoingRequest) -> Delivery:
        message = self._dialect.request(request)
        caller = caller_of(request)
        context = self._context.copy()
        context.run(_CALL.set, request)
        if caller is not None:
            context.run(OWNER.set, caller.owner)
            context.run(self._dialect.identity.variable.set, self._dialect.identity.user(caller))
        return context, self._dialect.wrap(message, caller)

    def _ended(self) -> Broken:
        return Broken(f"the server has ended; {self.last_words}")

    async def aclose(self) -> None:
        """End the run's input, which cancels its handlers, and wait for its end.

        A handler that blocks a thread cannot be cancelled. It is left alone after `STOP_SECONDS`.
        """
        self.input.close()
        _, running = await asyncio.wait({self._run}, timeout=STOP_SECONDS)
        if running:
            self._observer.note("hosted.run_lingers", server=self._server.name)
            self._run.cancel()

    async def take(self, item: Any) -> None:
        """Take a message of the run, in the task that writes it."""
        if self.link is None or self._run.done():
            raise self._anyio.ClosedResourceError
        answered = self._dialect.answered(item)
        origin = self._origin(item) if answered is None else self._no_call
        try:
            message = self._dialect.encode(item)
        except ValueError as error:
            # Half of a surrogate pair, for example. An error in the task of the framework would end the run.
            request = self._receiver.pending.find(answered)
            if request is None:
                raise
            request.fail(BadAnswer(f"the answer to {request.method} cannot be encoded: {error}"))
            return
        self._receiver.take(self.link, message, origin)
        if answered is None:
            # A handler that writes in a loop lets other tasks run, and waits for a client that reads slowly.
            await asyncio.sleep(0)
            if (room := origin.room()) is not None:
                await room

    def _origin(self, item: Any) -> OutgoingRequest:
        number = self._dialect.call_id(item)
        pending = self._receiver.pending
        if number is not None:
            # `mcp` 1 turns our numbers into strings here.
            return pending.find(int(number) if str(number).isdecimal() else number) or self._no_call
        call = _CALL.get()
        return call if call is not None and pending.get(call.id) is call else self._no_call

    async def _serve(self) -> None:
        try:
            await self._dialect.run(self._server, self.input, RunOutput(self.take))
        except Exception as error:  # noqa: BLE001 - the author's code; the link reports its end
            self._failure = error
            self._observer.note("hosted.run_failed", server=self._server.name, error=error)
        finally:
            self.input.close()


class HostedLink(DuplexLink):
    """A link over a run, which takes a request as it is."""

    def __init__(self, run: HostedRun, receiver: Receiver, observer: Observer) -> None:
        super().__init__(run, receiver, observer)
        self._run = run

    @override
    def _send(self, request: OutgoingRequest) -> None:
        try:
            self._run.put(request)
        except NotSent:
            self._stop_deaf()
            raise

    @override
    def _forget(self, request: OutgoingRequest) -> None:
        self._run.input.forget(request)
        super()._forget(request)
