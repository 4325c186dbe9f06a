"""The inbox of this replica: messages of other replicas, and the replies that tasks of this replica wait for.

    replica A                        store                         replica B
    ─────────────────────────        ───────────────────────       ──────────────────────────────
    send(B, name, message)    ──▶    inbox of B, wake-up     ──▶   look: give it to its handler
    wait for the reply               inbox of A, wake-up     ◀──   reply(A, name, verdict)
    look: resolve the future  ◀──

A message has a name, and is in an inbox once. It stays until its handler removes it (`remove`), so an unavailable store
or a lack of memory delays it and does not lose it. A wake-up says that there is something to read; the store also wakes
the replica once a second, in case a wake-up was lost.

Why a handler gets a message once. Its name is in `_taking` while the handler has it, and in `_removed` after the
handler has removed it, until `_REMEMBERED` others were removed. A store command that is sent twice can put a message
into the inbox again after its removal: then its name is known, and the message is only removed again.

After an outage of the store a message for a replica whose lease has ended is tried again for a while (`outages.py`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from msgspec.structs import replace

from holdfast.auth.forward_key import Credentials
from holdfast.core.ledger import Charge
from holdfast.engine.caller import Caller
from holdfast.engine.outages import Recovery, retried
from holdfast.engine.replica_messages import (
    ForwardedRequest,
    InboxMessage,
    Late,
    Reply,
    Retry,
    Submit,
    Verdict,
    caller_fields,
    decode_message,
    encode_message,
)
from holdfast.engine.runtime import Runtime
from holdfast.errors import HoldfastError, StoreError, TooMuchWork
from holdfast.stores.base import Forwarded

_REMEMBERED: Final = 20_000
"""How many names of removed messages are remembered: twice as many as an inbox can hold."""
_REPLY_SECONDS: Final = 60.0
"""How long a reply stays in an inbox. The replica that waits for it reads its inbox every second."""
_QUESTION_SECONDS: Final = 5.0
"""How long a question about this moment, or its answer, stays in an inbox."""
_RENEWED_SECONDS: Final = 0.1
"""How often a message is tried again while its replica may renew its lease."""
_SENDERS: Final = "forwarded"
"""The principal that a message is charged to until it is decoded and its own principal is known."""

_UNSEALED: Final = Late(
    "Busy: the replica that must answer cannot decrypt the credentials of this request, and nothing was executed. All replicas "
    "need the same forward key",
    retry_after=5,
)
Handler = Callable[[str, Any, bytes], Coroutine[Any, Any, None]]
"""Takes a message: its name, the message, and its bytes."""


class Inbox:
    """Sends messages to other replicas, and gives the messages for this one to their handlers."""

    def __init__(self, runtime: Runtime, credentials: Credentials) -> None:
        self._runtime = runtime
        self._credentials = credentials
        self.recovery: Recovery = Recovery(runtime.clock, runtime.settings.times)
        self._waiting: dict[str, asyncio.Future[Verdict]] = {}
        self._taking: set[str] = set()
        self._removed: OrderedDict[str, None] = OrderedDict()
        self._is_woken = self._is_looking = self._must_look_again = False
        self.handlers: dict[type, Handler] = {}
        """By the type of the message."""

    def __repr__(self) -> str:
        return f"<Inbox, {len(self._waiting)} replies awaited>"

    # To other replicas

    async def send(
        self,
        replica: str,
        name: str,
        message: InboxMessage,
        *,
        seconds: float,
        caller: Caller | None = None,
    ) -> bool:
        """Put a message into the inbox of a replica. False: its lease has ended, or its inbox is full.

        The headers of `caller` go with it, sealed, if this replica has a key.

        Raises:
            StoreError: the message cannot be encoded, because the principal has claims that JSON cannot hold.
        """
        payload = encode_message(message)
        if not payload:
            raise StoreError("the claims of this principal cannot be sent to another replica")
        if caller is not None:
            payload = self._credentials.attach(payload, dict(caller.headers), replica=replica)
        while not await self._runtime.store.forward(replica, name, payload, seconds=seconds):
            if not self.recovery.is_running():
                return False
            await asyncio.sleep(_RENEWED_SECONDS)
        return True

    def caller_fields(self, caller: Caller) -> dict[str, Any]:
        """Return the data of a caller that a message has in plain text."""
        return caller_fields(caller, is_sealed=self._credentials.has_key)

    @contextmanager
    def expecting(self, name: str) -> Iterator[asyncio.Future[Verdict]]:
        """Wait for the reply to the message of this name, which is about to be sent."""
        replied: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting[name] = replied
        try:
            yield replied
        finally:
            del self._waiting[name]

    async def ask(self, replica: str, message: InboxMessage, *, seconds: float) -> Verdict | None:
        """Send a question about this moment; return the answer. It is not repeated.

        None: the replica has not answered in time, or its lease has ended.

        Raises:
            StoreError: the question could not be sent.
        """
        name = self._runtime.random.token(12)
        with self.expecting(name) as replied:
            if not await self.send(replica, name, message, seconds=_QUESTION_SECONDS):
                return None
            await asyncio.wait([replied], timeout=seconds)
            return replied.result() if replied.done() else None

    async def answer(self, name: str, replica: str, verdict: Verdict) -> None:
        """Answer a question, once. If the store is unavailable, the replica that asked gets no answer."""
        with suppress(StoreError):
            await self.send(replica, f"re.{name}", Reply(name, verdict), seconds=_QUESTION_SECONDS)

    async def reply(self, replica: str, name: str, verdict: Verdict) -> bool:
        """Send the reply to a message, also if the store is unavailable for long. False: the sender is gone."""
        reply = Reply(name, verdict)
        return await retried(lambda: self.send(replica, f"re.{name}", reply, seconds=_REPLY_SECONDS))

    # From other replicas

    def wake_up(self) -> None:
        """Read the inbox now; if it is being read, once more."""
        self._is_woken = True
        if not self._is_looking:
            self._is_looking = True
            self._runtime.spawn(self._look())

    def tick(self) -> None:
        """Read the inbox again, if a message could not be taken before. Called once a second."""
        self.recovery.tick()
        if self._must_look_again:
            self._must_look_again = False
            self.wake_up()

    async def look(self) -> None:
        """Read the inbox once."""
        for forwarded in await self._runtime.store.inbox():
            self._take(forwarded)

    async def _look(self) -> None:
        try:
            while self._is_woken:
                self._is_woken = False
                await self.look()
        except StoreError:
            # No second wake-up comes for the messages that are in the inbox now.
            self._must_look_again = True
        finally:
            self._is_looking = False

    def _take(self, forwarded: Forwarded) -> None:
        name = forwarded.name
        if name not in self._taking:
            self._taking.add(name)
            self._runtime.spawn(self._taken(name, forwarded.payload))

    async def _taken(self, name: str, payload: bytes) -> None:
        try:
            if name in self._removed:
                await self.remove(name)
            else:
                await self._handle(name, payload)
        except TooMuchWork:
            self._must_look_again = True
        except HoldfastError as error:
            # The other replica is gone, or the store is unavailable.
            self._must_look_again = self._must_look_again or name not in self._removed
            self._runtime.observer.note("forward.dropped", error=error)
        finally:
            self._taking.discard(name)

    async def _handle(self, name: str, payload: bytes) -> None:
        readable, credentials = self._credentials.detach(payload, replica=self._runtime.store.replica)
        message = decode_message(readable)
        if isinstance(message, Reply):
            replied = self._waiting.get(message.to)
            if replied is not None and not replied.done():
                replied.set_result(message.verdict)
            await self.remove(name)
        elif message is None or type(message) not in self.handlers:
            # A later release has written it. Remove it, or each read would find it again until it expires.
            await self.remove(name)
            raise StoreError("a message to this replica cannot be read")
        elif credentials is None:
            await self._refuse_unsealed(name, message)
        else:
            if credentials and isinstance(message, ForwardedRequest):
                message = replace(message, headers={**message.headers, **credentials})
            await self.handlers[type(message)](name, message, payload)

    def charge(self, payload: bytes) -> Charge:
        """Return the charge for a message; hold it while the message is in memory.

        Raises:
            TooMuchWork: there is no room. A message whose handler raises this stays in the inbox, and is taken again later.
        """
        load = self._runtime.load
        return load.intake(load.account(_SENDERS)).charge(payload)

    async def _refuse_unsealed(self, name: str, message: InboxMessage) -> None:
        """Refuse a message whose credentials cannot be decrypted: without them it would be another request."""
        self._runtime.observer.note("forward.unsealed", message=type(message).__name__)
        await self.remove(name)
        if isinstance(message, Retry | Submit):
            await self.reply(message.reply_to, name, _UNSEALED)

    async def remove(self, name: str) -> bool:
        """Remove a message that is taken, also if the store is unavailable for long. False: its sender has taken it back."""
        self._removed[name] = None
        if len(self._removed) > _REMEMBERED:
            self._removed.popitem(last=False)
        return await retried(lambda: self._runtime.store.remove_forwarded(name))
