"""Conversations without a session: requests of 2026-07-28 that name one share what a session would have.

A client of 2026-07-28 has no session, so a browser, a transaction or a process behind cannot belong to its
conversation. The operator says where its requests name the conversation: a header, a member of `_meta`, an argument.
That key and the principal choose

    a hidden session in the store   its home is the replica that has the upstream; with `state="conversation"` its
                                    state is `ctx.state`
    the upstream behind             one for the principal, its capabilities and the conversation
                                    (`backs/proxy/upstreams.py`)

A request that arrives at another replica than the home is forwarded to it, as a retry is (`forwarding.py`). If the home
is not alive, or is stopping, this replica takes its place: a forwarded request is taken out of an inbox only by a
replica with a lease, so nothing of it has run; a home that is stopping says so. If the home has the request and does
not reply, the outcome is unknown.

A principal has at most `Limits.sessions_per_principal` conversations; for the next one, the one that was not used for
the longest time ends. A conversation ends after `Times.idle` without a request. Without the setting nothing of this
module runs.
"""

from hashlib import sha256

from msgspec.structs import replace

from limpet.engine.caller import Caller
from limpet.engine.forwarding import Forwarding
from limpet.engine.idempotency import IdempotentCalls, has_key, with_key
from limpet.engine.reader import Reader
from limpet.engine.rounds import ResponseWaiter
from limpet.engine.runtime import Runtime
from limpet.engine.session import HIDDEN
from limpet.engine.sessionless import SessionlessCalls
from limpet.errors import Busy, OutcomeUnknown, ParkedElsewhere, ParkedGone, Unreached, Withdrawn
from limpet.protocol.affinity import Affinity
from limpet.protocol.sessionless import RequestMeta
from limpet.protocol.versions import LATEST
from limpet.stores.base import Refusal, SessionRecord
from limpet.wire.jsonrpc import Request


class Conversations:
    """Finds the conversation of a request, and begins its call where the conversation is at home."""

    def __init__(
        self,
        runtime: Runtime,
        calls: SessionlessCalls,
        idempotent: IdempotentCalls,
        forwarding: Forwarding,
    ) -> None:
        self._runtime = runtime
        self._calls = calls
        self._idempotent = idempotent
        self._forward = forwarding.forward
        self.affinity: Affinity | None = (
            Affinity.read(runtime.settings.affinity) if runtime.settings.affinity else None
        )
        """Where requests name their conversation; None: they name none."""

    def named(self, request: Request, caller: Caller) -> str:
        """Return the key of the conversation that a request names; empty if it names none."""
        return "" if self.affinity is None else self.affinity.key_of(request.params, caller.headers)

    async def begin(
        self, key: str, meta: RequestMeta, caller: Caller, request: Request
    ) -> ResponseWaiter | Reader:
        """Begin the call of a request in its conversation, as `IdempotentCalls.begin` and `SessionlessCalls` do.

        Raises:
            OutcomeUnknown: the home of the conversation has the request, and does not reply.
            Withdrawn: no connection waits for it any more.
        """
        name = HIDDEN + sha256(f"{caller.key} conversation {key}".encode()).hexdigest()
        caller = replace(caller, conversation=name)
        record = await self._find_or_open(name, caller)
        me = self._runtime.store.replica
        # A retry goes to the replica that its state names.
        while record.home not in {"", me} and "requestState" not in request.params:
            try:
                return await self._forward(record.home, caller, with_key(request, meta.key))
            except Unreached:
                record = await self._runtime.store.take_home(name, record.home) or await self._find_or_open(
                    name, caller
                )
            except ParkedGone:
                raise OutcomeUnknown from None
        if caller.waiter is not None and caller.waiter.gone:
            raise Withdrawn
        if has_key(meta, request):
            return await self._idempotent.begin(meta, caller, request)
        try:
            begin = self._calls.go_on if "requestState" in request.params else self._calls.start
            return begin(meta, caller, request)
        except ParkedElsewhere as parked:
            return await self._forward(parked.replica, caller, request)

    async def _find_or_open(self, name: str, caller: Caller) -> SessionRecord:
        """Return the hidden session of a conversation; open it if it does not exist."""
        runtime, owner = self._runtime, f"conversations {caller.key}"
        times, store = runtime.settings.times, runtime.store
        while (found := await store.find(name, owner)) is None:
            record = SessionRecord(
                key=name,
                principal=owner,
                version=LATEST.name,
                standalone=runtime.random.token(12),
                client={},
                capabilities={},
                grace=times.idle,
                idle=times.idle,
                lifetime=times.lifetime,
                home=store.replica if runtime.back.has_home else "",
                opened=runtime.clock.wall(),
            )
            charge = None if runtime.at_once is None else runtime.load.session(caller)
            opened = await store.open(record, evict=bool(caller.key))
            if isinstance(opened, Refusal):
                raise Busy(
                    "Busy: the store has no room for another conversation; try again later", retry_after=30
                )
            for closed in opened:
                runtime.hidden.pop(closed.record.key, None)
            if runtime.at_once is not None and charge is not None:
                runtime.at_once.charge_to(name, charge.account)
                runtime.hidden[name] = charge
        return found.record
