"""Where the messages of a sessionless call go: to the response that is open now, or into the next round.

An ask suspends the handler. Asks made within a short quiet window go out together as one
`input_required` result; from then on the exchange is parked until a retry brings the answers
and a new response. The handler's body runs once, in one round or in many.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from limpet.core.ledger import Charge
from limpet.core.rounds import Asked, Rounds, Taken
from limpet.engine.delivery import Batch
from limpet.engine.load import LARGE
from limpet.engine.outcome import Outcome
from limpet.engine.wake import Wake
from limpet.errors import AskTimeout, BackPressureError, CallEnded, McpError, NoBackChannel
from limpet.wire.jsonrpc import RequestId

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange

MAX_ROUNDS: Final = 64
"""A call that needs more rounds fails. No known client sends so many retries."""
CONTINUED_ROUNDS: Final = 10
"""How many rounds of a long call may end with only its state: official clients send ten retries at most."""
_MAX_MESSAGES: Final = 256
_MAX_BYTES: Final = 65_536
"""Unwritten messages of one response, and their bytes, after which its handler must wait."""


_ENDED: Final = object()
"""In the place of an answer: the call has ended."""
Answers = dict[str, asyncio.Future[Any]]
"""By key: the answers that asks wait for."""


async def answer_to(method: str, answer: asyncio.Future[Any], timeout: float | None) -> Any:
    """Wait for the answer to an ask.

    Raises:
        AskTimeout: no answer came in time.
        CallEnded: the call has ended.
    """
    try:
        async with asyncio.timeout(timeout):
            found = await answer
    except TimeoutError:
        raise AskTimeout(f"the client did not answer {method} within {timeout:g} s") from None
    if found is _ENDED:
        raise CallEnded(method)
    return found


def end_asks(answers: Answers) -> None:
    """End the asks of a call that is over: a task of its handler, or a server behind us, may still wait."""
    for answer in answers.values():
        if not answer.done():
            answer.set_result(_ENDED)


class ResponseWaiter(Struct, eq=False):
    """One response that waits for the outcome of one round: the source of messages in memory (`delivery.py`)."""

    exchange: "Exchange"
    writer: "RoundWriter"
    number: int
    request_id: RequestId
    """The id of its request. The exchange may have another one: that of a later retry."""
    messages: list[bytes] = []
    """Messages that were sent and not yet taken to be written to the connection."""
    size: int = 0
    """Their bytes."""
    charge: Charge | None = None
    """Their memory, and that of those that are being written."""
    is_over: bool = False
    """The client has disconnected: nothing more is to be written."""
    writing: int = 0
    """Bytes that were taken and are not written: a write waits only for the client."""
    _wake: Wake | None = None

    @property
    def wake(self) -> Wake:
        """Set when there is something to write. Made when it is needed: most calls end before a task waits."""
        if self._wake is None:
            self._wake = Wake()
        return self._wake

    def wake_up(self) -> None:
        """Wake the task that waits."""
        if self._wake is not None:
            self._wake.set()

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of its round; None: it is not known yet."""
        return self.writer.outcomes.get(self.number)

    def leave(self) -> bool:
        """Forget the response. True: the call runs and no response waits for it, so `abandon` it."""
        return self.writer.leave(self)

    def check_end(self) -> bool:
        """True if the client has disconnected."""
        return self.is_over

    def stop(self) -> None:
        """End the delivery: the client has disconnected."""
        self.is_over = True
        self.wake_up()

    async def take(self) -> Batch | None:
        """Return the messages that wait and the outcome.

        The outcome is read first, so that no message comes after it.
        """
        outcome = self.outcome
        messages, self.messages = self.messages, []
        self.writing, self.size = self.size, 0
        self.writer.make_room()
        if outcome is None:
            return Batch(messages) if messages else None
        messages.append(outcome.message(self.request_id))
        return Batch(messages, finished=True, error=outcome.error)

    def written(self, batch: Batch) -> None:  # noqa: ARG002 - its messages were taken
        """Move on: from now on, the connection is charged for what its client has not read.

        An outcome is kept for repeats.
        """
        self.writing = 0
        if self.charge is not None:
            self.charge.set(self.size)

    async def wait(self, seconds: float | None) -> bool:
        """Wait for a message or the outcome. False: the time has passed without either."""
        return await self.wake.wait(seconds)


GoOut = Callable[["RoundWriter", int, dict[str, Asked]], bytes]
"""Parks the call, and encodes the result that asks for the input of the round of this number."""


def _ended(_writer: "RoundWriter", number: int, asked: dict[str, Asked]) -> bytes:
    raise RuntimeError(f"round {number} of a call that has ended asks for {len(asked)} answers")


class RoundWriter(Struct, eq=False):
    """Where the exchange of a sessionless call sends its messages."""

    _go_out: GoOut
    _quiet: float
    """Seconds for which an ask waits for other asks, to be sent in one result."""
    _limit: int
    """Most asks that may wait for an answer."""
    suspendable: bool
    """True if the result of this method can ask for input."""
    _given: Mapping[str, Any]
    """Answers in the first request, by key: an ask with such a key needs no round."""
    outcomes: dict[int, Outcome] = {}
    """The outcome of each round, by its number. A repeated retry gets the same one."""
    on_settled: Callable[[], None] | None = None
    """Called once when the call has ended or has become a task; None for a call that was never parked."""
    on_outcome: Callable[[], None] | None = None
    """Called once when the first round has its outcome; None for a call without an idempotency key."""
    on_retried: Callable[[], None] | None = None
    """Called after each retry: the request, its metadata and its caller are those of the retry."""
    charge: Charge | None = None
    """The memory that its rounds take while it is kept."""
    _rounds: Rounds | None = None
    _answers: Answers = {}
    _waiters: list[ResponseWaiter] = []
    _quiet_timer: asyncio.TimerHandle | None = None
    _room: asyncio.Event | None = None

    @property
    def rounds(self) -> Rounds:
        """The call's rounds. Made when they are needed: a plain call has only the first."""
        if self._rounds is None:
            self._rounds = Rounds()
        return self._rounds

    @property
    def is_parked(self) -> bool:
        """True if the newest round waits for the client's answers."""
        return self._rounds is not None and self._rounds.is_parked

    @property
    def is_left(self) -> bool:
        """True if the call runs, and no connection waits for it."""
        return not self._waiters and not self.is_parked

    @property
    def is_unread(self) -> bool:
        return any(waiter.writing for waiter in self._waiters)

    @property
    def asks(self) -> int:
        """How many asks wait for an answer."""
        return len(self._answers)

    @property
    def may_continue(self) -> bool:
        """True if a round may end with only the state, without a question. Rounds after the tenth are for questions."""
        return self.suspendable and self.rounds.number < CONTINUED_ROUNDS

    # Responses

    def add_waiter(self, exchange: "Exchange", number: int, request_id: RequestId) -> ResponseWaiter:
        """Add a response that waits for the outcome of a round."""
        waiter = ResponseWaiter(exchange, self, number, request_id)
        self._waiters.append(waiter)
        return waiter

    def leave(self, waiter: ResponseWaiter) -> bool:
        """Remove a response. True: the call runs, and none waits for it."""
        self._waiters.remove(waiter)
        waiter.charge = None
        self.make_room()
        return not self._waiters and waiter.number not in self.outcomes and not self.is_parked

    def _wake_waiters(self) -> None:
        """Wake the connections that wait: a round has its outcome."""
        for waiter in self._waiters:
            waiter.wake_up()
        if self.on_outcome is not None:
            on_outcome, self.on_outcome = self.on_outcome, None
            on_outcome()

    def make_room(self) -> None:
        """Let a handler go on that waits for room."""
        if self._room is not None:
            self._room.set()

    # The handler's side

    async def send(self, message: bytes) -> None:
        """Send on the newest response; while the call is parked, it has no response, and the message is dropped."""
        if not self._waiters or self.is_parked:
            return
        waiter = self._waiters[-1]
        waiter.messages.append(message)
        waiter.size += len(message)
        waiter.wake_up()
        while waiter in self._waiters and self._check_full(waiter):
            self._room = self._room or asyncio.Event()
            self._room.clear()
            await self._room.wait()

    def _check_full(self, waiter: ResponseWaiter) -> bool:
        """Charge the messages that wait.

        True if the handler must wait until some are taken: they are too many, too long, or have no room.
        """
        is_free = not waiter.size or (not waiter.writing and waiter.size < LARGE)
        account = None if is_free else waiter.exchange.caller.payer
        if account is not None:
            # The charge of the call is enough for short messages that leave at once.
            size = waiter.writing + waiter.size
            waiter.charge = waiter.charge or account.open()
            if not waiter.charge.grow(size, urgent=True):
                waiter.charge.set(size)
                return True
        return waiter.size >= _MAX_BYTES or len(waiter.messages) >= _MAX_MESSAGES

    async def ask(
        self, method: str, params: object, timeout: float | None = None, key: str | None = None
    ) -> Any:
        """Ask in the next round and wait for the answer.

        Raises:
            NoBackChannel: this method's answer cannot ask for input.
            BackPressureError: too many asks wait already.
            AskTimeout: no answer came in time.
            CallEnded: the call has ended.
        """
        if not self.suspendable:
            raise NoBackChannel(
                f"{method} cannot reach the client: this method's answer cannot ask for input"
            )
        if key is not None and type(given := self._given.get(key)) is dict:
            self._given = {name: value for name, value in self._given.items() if name != key}
            return given
        if len(self.rounds.waiting) >= self._limit:
            raise BackPressureError(f"{method} refused: {self._limit} asks of this call wait for an answer")
        name = self.rounds.ask(Asked(method, params), key)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[name] = answer
        self._ask_soon()
        try:
            return await answer_to(method, answer, timeout)
        finally:
            self.rounds.withdraw(name)
            del self._answers[name]

    def _ask_soon(self) -> None:
        """Send the asks after a quiet window, so that several asks are in one result. Each ask restarts the window."""
        if self.is_parked:
            return
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()
        self._quiet_timer = asyncio.get_running_loop().call_later(self._quiet, self.go_out)

    def go_out(self) -> None:
        """End the round with the asks made so far, or with only the state, and park."""
        self._quiet_timer = None
        answered = self.rounds.number
        if self.rounds.is_parked or answered in self.outcomes:
            return
        if answered >= MAX_ROUNDS:
            self._fail(McpError(-32603, f"the call asked for input in more than {MAX_ROUNDS} rounds"))
            return
        asked = self.rounds.go_out()
        try:
            self.outcomes[answered] = Outcome(self._go_out(self, self.rounds.number, asked))
        except McpError as error:
            self.outcomes[answered] = Outcome(error=error)
            self._fail(error)
        self._wake_waiters()

    def _fail(self, error: McpError) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)

    def end_asks(self) -> None:
        """End the asks of a call that is over."""
        end_asks(self._answers)

    def settle(self, outcome: Outcome) -> None:
        """Keep the outcome for the connections that wait and for later retries."""
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()
        self.outcomes.setdefault(self._rounds.number if self._rounds is not None else 0, outcome)
        # Break the reference cycle with the exchange, so that reference counting frees both.
        self._go_out = _ended
        on_settled, self.on_settled = self.on_settled, None
        if on_settled is not None:
            on_settled()
        self._wake_waiters()
        self.make_room()

    # The client's side

    def take(self, number: int, answers: dict[str, Any], digest: bytes) -> bool:
        """Take the answers of a retry; False if the retry must be refused."""
        taken, given = self.rounds.take(number, answers, digest)
        for name, value in given.items():
            if name in self._answers and not self._answers[name].done():
                self._answers[name].set_result(value)
        if taken is Taken.FRESH and self.rounds.waiting:
            # Ask the unanswered questions again, together with the next ones of the handler.
            self._ask_soon()
        return taken is not Taken.REFUSED
