"""The invariants of the guarantees, checked over a finished run: I1 to I8 and I10."""

from typing import Any

import msgspec

from limpet.core.lifecycle import SessionInput
from limpet.engine.session import event_id
from tests.simulation.ledger import Ledger, Request
from tests.simulation.world import ASKS, World


def check(world: World) -> None:
    """Write every violation into the ledger."""
    ledger = world.ledger
    _streams_end_once(world)
    for request in ledger.requests:
        _reads_its_own_stream(ledger, request)
        _gets_its_answer(ledger, request)
    _handlers_start_once(ledger)
    _handlers_start_at_home(world)
    _requests_run_once(world)
    _requests_start_while_a_client_waits(world)
    _counters_are_exact(world)
    _asks_get_their_own_answers(ledger)
    _sessions_end_once(ledger)
    _nothing_fails(world)


def _streams_end_once(world: World) -> None:
    """I1: one terminal message, last, and nothing runs forever."""
    ledger = world.ledger
    for (key, stream), log in ledger.logs.items():
        ends = [final for _, final in log]
        if ends.count(True) > 1 or (True in ends and not ends[-1]):
            ledger.violate("I1", f"stream {stream[:6]} has {ends.count(True)} ends in {len(ends)} events")
        if stream in ledger.claims and True not in ends and key not in ledger.closings:
            ledger.violate("I1", f"stream {stream[:6]} never ended")
    for key, session in world.store._sessions.items():
        if session.readers:
            ledger.violate(
                "I8", f"{session.readers} readers are left in {key[:6]}, and no connection is open"
            )
        running = [name[:6] for name, channel in session.exchanges.items() if channel.running]
        if running or session.running or session.calls:
            ledger.violate("I1", f"{running} still in flight in {key[:6]}, counted as {session.running}")


def _reads_its_own_stream(ledger: Ledger, request: Request) -> None:
    """I1, I2: a client receives the messages of a stream from its start, in order, once."""
    if not request.last_id:
        return
    stream = request.last_id.partition(".")[0]
    written = {
        event_id(stream, event.position): event.data for event, _ in ledger.logs[request.session, stream]
    }
    got = [name for name, _ in request.events]
    if got != list(written)[: len(got)]:
        ledger.violate("I2", f"{request.nonce} got {_short(got)} of {_short(list(written))}")
    for name, message in request.events:
        if name in written and msgspec.json.decode(written[name]) != message:
            ledger.violate("I2", f"{request.nonce} got something else than was written at {name}")
    numbers = [
        m["params"]["n"] for _, m in request.events if "method" in m and "id" not in m and "n" in m["params"]
    ]
    if numbers != list(range(len(numbers))):
        ledger.violate("I2", f"{request.nonce} received {numbers}")
    results = [m["result"]["n"] for _, m in request.events if "result" in m]
    if results not in ([], [len(numbers)]):
        ledger.violate("I2", f"{request.nonce} received {numbers} of {results}")


def _gets_its_answer(ledger: Ledger, request: Request) -> None:
    """I1: a client with a position to resume from gets one answer, unless the session is gone."""
    if len(request.terminals) > 1:
        ledger.violate("I1", f"{request.nonce} got {len(request.terminals)} answers")
    if request.last_id and not request.terminals and request.session not in ledger.closings:
        ledger.violate("I1", f"{request.nonce} never got its answer: {request.refusals}")
    if request.gone and request.session not in ledger.closings:
        ledger.violate("I8", f"{request.nonce} was answered that its session is gone")


def _handlers_start_once(ledger: Ledger) -> None:
    """I4: a claim starts one handler, and no handler starts without a claim."""
    for stream, starts in ledger.starts.items():
        if starts > 1 or stream not in ledger.claims:
            ledger.violate("I4", f"the handler of {stream[:6]} started {starts} times")
    if "evil" in ledger.nonces.values():
        ledger.violate("I10", "a stranger's request ran")


def _handlers_start_at_home(world: World) -> None:
    """Of I4: where sessions have homes, a handler starts at a replica that was the home when it claimed the exchange."""
    ledger = world.ledger
    for stream, replicas in ledger.started_at.items() if world.has_home else ():
        if len(replicas) > 1 or any((name, name) not in ledger.homes[stream] for name in replicas):
            ledger.violate("I4", f"{stream[:6]} started at {replicas}, claimed {ledger.homes[stream]}")


def _requests_run_once(world: World) -> None:
    """Of I4, in one process: a request runs again only after an answer was written to a connection that seemed to be there."""
    for nonce in world.ledger.early if world.is_alone else ():
        world.ledger.violate("I4", f"{nonce} ran again, and no answer was written before")


def _requests_start_while_a_client_waits(world: World) -> None:
    """Of I4: no handler starts for a request whose connections have all ended. A home learns of it from the store, later."""
    for nonce in world.ledger.unwanted if not world.has_home else ():
        world.ledger.violate("I4", f"{nonce} started, and no connection waited for it")


def _counters_are_exact(world: World) -> None:
    """I5: acknowledged increments are there; only those whose caller never knew may be there or not."""
    ledger = world.ledger
    for key, value in world.store.counters().items():
        if not ledger.added[key] <= value <= ledger.adding[key]:
            ledger.violate("I5", f"counter {value}, acknowledged {ledger.added[key]} of {ledger.adding[key]}")


def _asks_get_their_own_answers(ledger: Ledger) -> None:
    """I6, I7: each ask is resolved once, by the answer to it that came first."""
    answers: dict[str, list[Any]] = {}
    for ask, payload in ledger.first.items():
        if ask in ledger.asked:
            answers.setdefault(ledger.asked[ask], []).append(msgspec.json.decode(payload).get("result"))
    for name, resolved in ledger.resolved.items():
        for answer in resolved:
            if "error" in answer:
                if answer["error"] == "AskTimeout" and name in ledger.asked.values():
                    ledger.violate("I7", f"ask {name} was seen and answered, and timed out")
                continue
            if answer["for"] != name or answer not in answers.get(name, []):
                ledger.violate("I6", f"ask {name} was resolved by {answer}, answered {answers.get(name)}")
    if ledger.most_asks > ASKS:
        ledger.violate("I7", f"{ledger.most_asks} asks outstanding")


def _sessions_end_once(ledger: Ledger) -> None:
    """I8: one closing transition."""
    for key, closings in ledger.closings.items():
        if len(closings) > 1:
            ledger.violate("I8", f"session {key[:6]} was closed {len(closings)} times: {closings}")
        reason = closings[0][1]
        if reason is not SessionInput.GRACE_OVER and (
            reason is not SessionInput.DELETED or key not in ledger.deleted
        ):
            ledger.violate("I8", f"session {key[:6]} was ended without a right: {reason.value}")


def _nothing_fails(world: World) -> None:
    """Of I12: no application raises instead of answering."""
    for replica in world.replicas:
        for error in replica.node.failures:
            world.ledger.violate("I12", f"{replica.name} failed: {error!r}")


def _short(ids: list[str]) -> list[str]:
    return [".".join((name[:4], *name.split(".")[1:2])) for name in ids]
