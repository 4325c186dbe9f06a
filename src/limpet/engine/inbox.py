"""The inbox of this replica: the way of messages (`messages.py`) through the store.

    replica A                        store                         replica B
    ─────────────────────────        ───────────────────────       ──────────────────────────────
    send(B, message)          ──▶    inbox of B, wake-up     ──▶   look: give it to its handler
    wait for the reply               inbox of A, wake-up     ◀──   Received.reply
    look: end the wait        ◀──

A message is in an inbox once. It stays until its handler removes it (`remove`), so an unavailable store
or a lack of memory delays it and does not lose it. A wake-up says that there is something to read; the store also wakes
the replica once a second, in case a wake-up was lost.

Why a handler gets a message once. Its name is in `_taking` while the handler has it, and in `_removed` after the
handler has removed it, until `_REMEMBERED` others were removed. A store command that is sent twice can put a message
into the inbox again after its removal: then its name is known, and the message is only removed again.

After an outage of the store a message for a replica whose lease has ended is tried again for a while (`outages.py`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from limpet.auth.forward_key import CredentialSealer
from limpet.core.ledger import Charge
from limpet.engine.caller import Caller
from limpet.engine.messages import (
    FAILED,
    REPLIES,
    REPLY,
    Began,
    ForwardedRequest,
    Late,
    Message,
    Notify,
    Replies,
    Verdict,
    caller_fields,
    decode_message,
    decode_verdict,
)
from limpet.engine.outages import Recovery, retried
from limpet.engine.runtime import Runtime
from limpet.errors import Busy, LimpetError, StoreError, StoreUnavailable, TooMuchWork
from limpet.stores.base import Forwarded

_REMEMBERED: Final = 20_000
"""How many names of removed messages are remembered: twice as many as an inbox can hold."""
_REPLY_SECONDS: Final = 60.0
"""How long a reply stays in an inbox. The replica that waits for it reads its inbox every second."""
_QUESTION_SECONDS: Final = 5.0
"""How long a question about this moment stays in an inbox."""
_LAST_SECONDS: Final = 0.1
"""How long the reply of a dead replica may take from the inbox to the task that waits."""
_RENEWED_SECONDS: Final = 0.1
"""How often a message is tried again while its replica may renew its lease."""
_SENDERS: Final = "forwarded"
"""The account of messages until they are decoded and their own principal is known, and of anonymous clients: only
the sender knows their addresses."""
_FULL: Final = "Busy: the replica that must answer has too much to do; try again shortly"
_UNSEALED: Final = Late(
    "Busy: the replica that must answer cannot decrypt the credentials of this request, and nothing was executed. All replicas "
    "need the same forward key",
    retry_after=5,
)


class Received:
    """A message that is in the inbox of this replica, for its handler."""

    __slots__ = ("_inbox", "_payload", "_read", "body", "name", "reply_to")

    def __init__(
        self, inbox: "Inbox", message: Message, body: Any, payload: bytes, read: Charge | None = None
    ) -> None:
        """`read`: the charge for the bytes of the message."""
        self._inbox = inbox
        self._payload = payload
        self._read = read
        self.name: str = message.name
        self.reply_to: str = message.reply_to
        self.body: Any = body

    def charge(self) -> Charge:
        """Return the charge for the message, to its own principal and session; hold it while the message is in memory.

        Raises:
            TooMuchWork: there is no room. A message whose handler raises this stays in the inbox, and is taken again
                later.
        """
        charge = self._inbox.charge(self._payload, self.body)
        if self._read is not None:
            self._read.free()
        return charge

    async def remove(self) -> bool:
        """Take the message out of the inbox, also if the store is unavailable for long.

        False: its sender has taken it back.
        """
        return await self._inbox.remove(self.name)

    async def reply(self, body: object, kind: str = REPLY) -> bool:
        """Send the reply, also if the store is unavailable for long. False: the sender is gone."""
        reply = Message.of(kind, self.name, body)
        return await retried(lambda: self._inbox.send(self.reply_to, reply, seconds=_REPLY_SECONDS))


Handler = Callable[[Received], Coroutine[Any, Any, None]]


class Inbox:
    """Sends messages to other replicas, and gives the messages for this one to their handlers."""

    def __init__(self, runtime: Runtime, credentials: CredentialSealer) -> None:
        self._runtime = runtime
        self._credentials = credentials
        self.recovery: Recovery = Recovery(runtime.clock, runtime.settings.times)
        self._replies = Replies()
        self._taking: set[str] = set()
        self._removed: OrderedDict[str, None] = OrderedDict()
        self._is_woken = self._is_looking = self._must_look_again = False
        self.handlers: dict[str, tuple[Any, Handler]] = {}
        """By kind: the type of the body, and the handler."""

    # To other replicas

    async def send(
        self, replica: str, message: Message, *, seconds: float, caller: Caller | None = None
    ) -> bool:
        """Put a message into the inbox of a replica. False: its lease has ended, or its inbox is full.

        The headers of `caller` go with it, sealed, if this replica has a key.
        """
        name = f"re.{message.name}" if message.kind in REPLIES else message.name
        payload = msgspec.json.encode(message)
        if caller is not None:
            payload = self._credentials.attach(payload, dict(caller.headers), replica=replica)
        while not await self._runtime.store.forward(replica, name, payload, seconds=seconds):
            if not self.recovery.check_running():
                return False
            await asyncio.sleep(_RENEWED_SECONDS)
        return True

    def caller_fields(self, caller: Caller) -> dict[str, Any]:
        """Return the data of a caller that a message has in plain text."""
        return caller_fields(caller, is_sealed=self._credentials.has_key)

    async def ask(self, replica: str, kind: str, body: object = None, *, seconds: float) -> Message | None:
        """Send a question about this moment; return the reply. It is not repeated.

        None: the replica has not answered in time, or its lease has ended.

        Raises:
            StoreError: the question could not be sent.
        """
        asked = Message.of(kind, self._runtime.random.token(12), body, self._runtime.store.replica)
        with self._replies.expected(asked.name) as waiter:
            is_sent = await self.send(replica, asked, seconds=_QUESTION_SECONDS)
            return await waiter.reply(seconds) if is_sent else None

    async def request(
        self, replica: str, kind: str, name: str, body: ForwardedRequest, caller: Caller, *, seconds: float
    ) -> Verdict | None:
        """Send a request of a client; return the verdict of the replica. The message stays in its inbox for `seconds`.

        None: that replica is gone or has no handler, and the request did not start there. Began may also mean that
        there is no
        reply: that replica took the request, so it may have started.

        Raises:
            Busy: the replica is alive and has not taken the request.
        """
        store, lease = self._runtime.store, self._runtime.settings.times.lease
        message = Message.of(kind, name, body, store.replica)
        with self._replies.expected(name) as waiter:
            # Insist until the store says whether it has the message: after a refusal the client would repeat a
            # request that runs.
            if not await retried(lambda: self.send(replica, message, seconds=seconds, caller=caller)):
                await self._require_gone(replica)
                return None
            reply = await waiter.reply(2 * lease, lambda: self._check_gone(replica))
            while reply is None and self.recovery.check_running():
                reply = await waiter.reply(_RENEWED_SECONDS)
            if reply is None:
                if await retried(lambda: store.remove_forwarded(name, replica=replica)):
                    await self._require_gone(replica)
                    return None
                await retried(self.look)
                reply = await waiter.reply(_LAST_SECONDS)
            if reply is None:
                return Began()
            return None if reply.kind == FAILED else decode_verdict(reply.body)

    async def _require_gone(self, replica: str) -> None:
        """Return if a replica that has not taken a request is gone.

        Raises:
            Busy: it is alive.
        """
        if not await self._check_gone(replica):
            raise Busy(_FULL)

    async def _check_gone(self, replica: str) -> bool:
        """True if the lease of a replica has ended; not while living replicas may not have renewed theirs."""
        try:
            return not self.recovery.check_running() and replica not in await self._runtime.store.replicas()
        except StoreUnavailable:
            return False

    def answer(self, kind: str, body: Any, answered: Callable[[Any], Awaitable[object]]) -> None:
        """Answer the questions of a kind: `answered` takes the body of a question, and returns that of its reply."""

        async def take(question: Received) -> None:
            await question.remove()
            await question.reply(await answered(question.body))

        self.handlers[kind] = body, take

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
            self._runtime.spawn(self._process(name, forwarded.payload))

    async def _process(self, name: str, payload: bytes) -> None:
        read = self._runtime.load.account(_SENDERS).open()
        read.set(len(payload))
        try:
            if name in self._removed:
                await self.remove(name)
            else:
                await self._handle(name, payload, read)
        except TooMuchWork:
            self._must_look_again = True
        except LimpetError as error:
            # The other replica is gone, or the store is unavailable.
            self._must_look_again = self._must_look_again or name not in self._removed
            self._runtime.observer.note("forward.dropped", error=error)
        finally:
            read.free()
            self._taking.discard(name)

    async def _handle(self, name: str, payload: bytes, read: Charge) -> None:
        await self._runtime.load.decoding.turn(read.account, len(payload))
        readable, credentials = self._credentials.detach(payload, replica=self._runtime.store.replica)
        try:
            message = decode_message(readable)
            kind, handler = self.handlers.get(message.kind, (msgspec.Raw, _refuse_unknown))
            body = msgspec.json.decode(message.body, type=kind)
        except msgspec.DecodeError as error:
            # A later release has written it. Remove it, or each read would find it again until it expires.
            await self.remove(name)
            raise StoreError("a message to this replica cannot be read") from error
        if message.kind in REPLIES:
            self._replies.take(message.name, message)
            await self.remove(name)
            return
        if credentials is None:
            self._runtime.observer.note("forward.unsealed", message=message.kind)
            handler = _refuse_unsealed
        elif credentials and isinstance(body, ForwardedRequest):
            body = replace(body, headers={**body.headers, **credentials})
        await handler(Received(self, message, body, payload, read))

    def charge(self, payload: bytes, body: ForwardedRequest | Notify) -> Charge:
        """Return the charge for a decoded message. Raises as `Received.charge`."""
        load = self._runtime.load
        owner = body.owner if isinstance(body, ForwardedRequest) else ""
        intake = load.intake(load.account(owner or _SENDERS, body.session))
        charge = intake.charge(payload)
        if isinstance(body, ForwardedRequest) and not intake.may_pass(body.request):
            raise TooMuchWork
        return charge

    async def remove(self, name: str) -> bool:
        """Remove a message that is taken, also if the store is unavailable for long.

        False: its sender has taken it back.
        """
        self._removed[name] = None
        if len(self._removed) > _REMEMBERED:
            self._removed.popitem(last=False)
        return await retried(lambda: self._runtime.store.remove_forwarded(name))


async def _refuse_unsealed(message: Received) -> None:
    """Refuse a message whose credentials cannot be decrypted: without them it would be another request."""
    await message.remove()
    await message.reply(_UNSEALED)


async def _refuse_unknown(message: Received) -> None:
    """Refuse a message of a kind that this process has no handler for."""
    await message.remove()
    if message.reply_to:
        await message.reply("this process has no handler for it", FAILED)
