"""Calls of 2026-07-28 with an idempotency key: a repeat receives the answer of the one execution, here and at another replica."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any
from unittest.mock import patch

import pytest

from limpet.auth import Principal
from limpet.config import Settings, Times
from limpet.core.lifecycle import SessionInput
from limpet.core.records import KEPT_SECONDS
from limpet.core.rules.streams import drop_finished
from limpet.engine.session import HIDDEN
from limpet.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    OUTCOME_UNKNOWN,
    REQUEST_CANCELLED,
    StoreUnavailable,
)
from limpet.protocol.idempotency import HEADER, KEY
from limpet.stores.base import Claimed
from limpet.testing.store.limits import tight
from tests.asgi import Call, Peer
from tests.messages import metadata, notification
from tests.support import until
from tests.unit.engine.harness import settle_down
from tests.unit.fronts.http.bench import Bench, bench, front_test
from tests.unit.fronts.http.test_deleted import replicas

NAME = HEADER.lower()
LONG = "0123456789abcdefghijkl"
TIMES = Times(lease=10, lease_renewal=3, stream_age=(1e5, 2e5), repeat=30)
WHERE = pytest.mark.parametrize("where", ["here", "elsewhere"])


@asynccontextmanager
async def served(where: str, **settings: Any) -> AsyncIterator[tuple[Bench, Peer, Peer]]:
    """Yield the replica that runs the call, its client, and the client that repeats, here or at another replica."""
    async with replicas(1 if where == "here" else 2, times=TIMES, **settings) as benches:
        yield benches[0], benches[0].peer(), benches[-1].peer()


def call(peer: Peer, tool: str = "held", *, id: int | str = 1, key: str | None = "k", **options: Any) -> Call:  # noqa: A002
    """Begin a call with a key."""
    arguments, token = options.pop("arguments", {}), options.pop("token", None)
    capabilities = options.pop("capabilities", None)
    meta = metadata(capabilities=capabilities) | ({} if key is None else {KEY: key})
    meta |= {} if token is None else {"progressToken": token}
    params = {"name": tool, "arguments": arguments, **options.pop("params", {})}
    return peer.sessionless("tools/call", params, id=id, meta=meta, **options)


def answer(response: Call) -> Any:
    """Return the message that a response ends with."""
    return response.messages[-1] if response.is_stream else response.json


async def runs(bench: Bench, count: int = 1) -> None:
    while len(bench.runs) < count:
        await asyncio.sleep(0.01)


@WHERE
@front_test
async def test_a_repeat_after_a_cut_receives_the_answer_of_the_running_call(where: str) -> None:
    async with served(where) as (one, p, q):
        first = call(p)
        await runs(one)
        await first.cut()
        repeat = call(q, id=2)
        await asyncio.sleep(5)
        assert not repeat.complete
        one.release.set()
        await repeat.done()
        assert (repeat.status, answer(repeat)["id"]) == (200, 2)
        assert answer(repeat)["result"]["tool"] == "held"
        assert one.runs == ["held"]


@WHERE
@front_test
async def test_a_repeat_after_the_end_receives_the_kept_answer_also_if_the_first_was_taken(
    where: str,
) -> None:
    async with served(where) as (one, p, q):
        first = await call(p, "quick").done()
        await settle_down()
        for number in (7, 8):
            repeat = await call(q, "quick", id=number).done()
            assert (repeat.status, repeat.json["id"]) == (200, number)
            assert repeat.json["result"] == first.json["result"]
        assert one.runs == ["quick"]


@WHERE
@front_test
async def test_two_connections_with_one_key_both_receive_the_answer(where: str) -> None:
    """Either replica may run the call: both requests begin at once."""
    async with replicas(1 if where == "here" else 2, times=TIMES) as benches:
        both = [call(benches[0].peer(), id=1), call(benches[-1].peer(), id=2)]
        await until(lambda: any(bench.runs for bench in benches))
        await asyncio.sleep(3)
        for bench in benches:
            bench.release.set()
        found = [answer(await each.done()) for each in both]
        assert [each["id"] for each in found] == [1, 2]
        assert found[0]["result"] == found[1]["result"]
        assert [tool for bench in benches for tool in bench.runs] == ["held"]


@WHERE
@pytest.mark.parametrize("other", ["running", "ended"])
@front_test
async def test_the_same_key_with_another_name_or_other_arguments_is_refused(where: str, other: str) -> None:
    async with served(where) as (one, p, q):
        first = call(p, arguments={"a": 1})
        await runs(one)
        if other == "ended":
            one.release.set()
            await first.done()
            await settle_down()
        for tool, value in (("quick", 1), ("held", 2)):
            refused = await call(q, tool, id=2, arguments={"a": value}).done()
            assert (refused.status, refused.json["error"]["code"]) == (400, INVALID_REQUEST)
            assert "idempotency key" in refused.json["error"]["message"]
        assert one.runs == ["held"]
        one.release.set()
        assert answer(await first.done())["result"]["tool"] == "held"


@WHERE
@front_test
async def test_id_progress_token_and_trace_may_differ_and_progress_comes_with_the_new_token(
    where: str,
) -> None:
    async with served(where) as (one, p, q):
        one.back.on("tools/call")(one_by_one(one))
        first = call(p, "steps", token="first")
        await first.until(1)
        await first.cut()
        repeat = call(q, "steps", id="other", token="second", headers={"traceparent": "00-2"})
        await asyncio.sleep(3)
        one.release.set()
        await repeat.done()
        progress = [message["params"] for message in repeat.messages[:-1]]
        assert progress == [{"progressToken": "second", "progress": 2}]
        assert answer(repeat) == {"jsonrpc": "2.0", "id": "other", "result": {"steps": 2}}
        assert one.runs == ["steps"]


def one_by_one(one: Bench) -> Any:
    """Return a tool that reports two steps, each with the token that its request has then."""

    async def steps(exchange: Any) -> object:
        one.runs.append("steps")
        for number in (1, 2):
            token = exchange.request.params["_meta"]["progressToken"]
            await exchange.notify("notifications/progress", {"progressToken": token, "progress": number})
            await one.release.wait()
        return {"steps": 2}

    return steps


@front_test
async def test_without_a_key_a_cut_cancels_at_once_and_with_one_after_the_time_for_a_repeat() -> None:
    async with bench(Settings(times=TIMES)) as one:
        plain = call(one.peer(), key=None)
        await runs(one)
        await plain.cut()
        await settle_down()
        assert one.engine.live_exchanges() == []
        keyed = call(one.peer())
        await runs(one, 2)
        await keyed.cut()
        await asyncio.sleep(29)
        assert len(one.engine.live_exchanges()) == 1
        await asyncio.sleep(2)
        assert one.engine.live_exchanges() == []
        repeat = await call(one.peer(), id=2).done()
        assert repeat.json["error"]["code"] == REQUEST_CANCELLED, "it may have had a part of its effect"
        assert one.runs == ["held", "held"]


@front_test
async def test_a_repeat_that_breaks_too_begins_the_time_again() -> None:
    async with bench(Settings(times=TIMES)) as one:
        first = call(one.peer())
        await runs(one)
        await first.cut()
        await asyncio.sleep(20)
        second = call(one.peer(), id=2)
        await asyncio.sleep(20)
        await second.cut()
        await asyncio.sleep(20)
        third = call(one.peer(), id=3)
        await asyncio.sleep(60)
        one.release.set()
        assert answer(await third.done())["result"]["tool"] == "held"


@WHERE
@pytest.mark.parametrize("by", ["header", "meta"])
@front_test
async def test_a_cancellation_that_names_the_key_cancels_at_once(where: str, by: str) -> None:
    async with served(where) as (one, p, q):
        first = call(p)
        await runs(one)
        params = {"requestId": 1} | ({"_meta": {KEY: "k"}} if by == "meta" else {})
        headers = {"mcp-protocol-version": "2026-07-28"} | ({NAME: "k"} if by == "header" else {})
        said = await q.post(notification("notifications/cancelled", params), headers=headers).done()
        assert said.status == 202
        await first.done()
        assert answer(first)["error"]["code"] == REQUEST_CANCELLED
        await settle_down()
        assert one.engine.live_exchanges() == []


@front_test
async def test_the_header_counts_as_the_member_and_the_two_may_not_differ() -> None:
    async with bench(Settings(times=TIMES)) as one:
        p = one.peer()
        for value in ("abc", '"abc"'):
            done = await call(p, "quick", key=None, headers={NAME: value}).done()
            assert done.status == 200
        assert (await call(p, "quick", key="abc").done()).status == 200
        assert one.runs == ["quick"]
        refused = await call(p, "quick", key="other", headers={NAME: "abc"}).done()
        assert (refused.status, refused.json["error"]["code"]) == (400, INVALID_PARAMS)
        for bad in (7, "", "a b", "x" * 256, "é"):
            refused = await call(p, "quick", key=bad).done()  # type: ignore[arg-type]
            assert (refused.status, refused.json["error"]["code"]) == (400, INVALID_PARAMS), bad
        twice = await call(
            p, "quick", key=None, raw=[(b"idempotency-key", b"a"), (b"idempotency-key", b"b")]
        ).done()
        assert twice.status == 400


async def verifier(token: str) -> Principal | None:
    return Principal(subject=token)


@front_test
async def test_keys_belong_to_a_principal() -> None:
    async with bench(Settings(times=TIMES), verifier=verifier) as one:
        for token in ("alice", "bob", "alice"):
            assert (await call(one.peer(token=token), "quick").done()).status == 200
            await settle_down()
        assert one.runs == ["quick", "quick"]


@front_test
async def test_an_anonymous_client_of_another_machine_needs_a_key_that_cannot_be_guessed() -> None:
    async with bench(Settings(times=TIMES), allow_anonymous=True) as one:
        refused = await call(one.peer(client="192.0.2.1"), "quick", key=LONG[:-1]).done()
        assert (refused.status, refused.json["error"]["code"]) == (400, INVALID_PARAMS)
        assert "22 characters" in refused.json["error"]["message"]
        for _ in range(2):
            assert (await call(one.peer(client="192.0.2.1"), "quick", key=LONG).done()).status == 200
        assert one.runs == ["quick"]


@front_test
async def test_a_key_ends_after_its_time() -> None:
    async with bench(Settings(times=TIMES)) as one:
        await call(one.peer(), "quick").done()
        await asyncio.sleep(KEPT_SECONDS - 1)
        await call(one.peer(), "quick", id=2).done()
        assert one.runs == ["quick"]
        await asyncio.sleep(KEPT_SECONDS + 1)
        await call(one.peer(), "quick", id=3).done()
        assert one.runs == ["quick", "quick"]


@front_test
async def test_a_killed_owner_leaves_an_unknown_outcome_and_no_second_run() -> None:
    async with replicas(2, times=TIMES) as (one, two):
        call(one.peer())
        await runs(one)
        # As after kill -9: it renews no lease, receives no wake-up and answers nothing.
        assert one.engine.replica._keeper is not None
        one.engine.replica._keeper.stop()
        one.store.bind(lambda *_: None)
        repeat = call(two.peer(), id=2)
        await asyncio.sleep(1)
        assert not repeat.complete
        await two.store.renew(TIMES.lease)
        await one.store.release()
        await repeat.done()
        assert (answer(repeat)["id"], answer(repeat)["error"]["code"]) == (2, OUTCOME_UNKNOWN)
        again = await call(two.peer(), id=3).done()
        assert answer(again)["error"]["code"] == OUTCOME_UNKNOWN, "it is kept"
        assert (one.runs, two.runs) == (["held"], [])


@front_test
async def test_a_call_that_was_refused_as_busy_leaves_its_key_free() -> None:
    async with bench(Settings(limits=tight(sessionless_calls=1), times=TIMES)) as one:
        running = call(one.peer(), key=None)
        await runs(one)
        refused = await call(one.peer(), "quick", id=2).done()
        assert refused.status == 429
        one.release.set()
        await running.done()
        assert (await call(one.peer(), "quick", id=3).done()).json["id"] == 3
        assert one.runs == ["held", "quick"]


@WHERE
@front_test
async def test_a_question_is_asked_once_and_its_retry_may_have_the_same_key(where: str) -> None:
    async with served(where) as (one, p, q):
        roots: dict[str, Any] = {"roots": {}}
        asked = await call(p, "ask", capabilities=roots).done()
        await settle_down()
        again = await call(q, "ask", id=2, capabilities=roots).done()
        assert again.json["result"] == asked.json["result"], "the same question, under the same state"
        result = again.json["result"]
        [name] = result["inputRequests"]
        params = {"requestState": result["requestState"], "inputResponses": {name: {"roots": []}}}
        ended = await call(q, "ask", id=3, capabilities=roots, params=params).done()
        assert answer(ended)["result"]["answer"] == {"roots": []}
        assert one.runs == ["ask"]


@front_test
async def test_a_call_without_a_key_uses_no_store_and_a_key_makes_no_session_of_a_client() -> None:
    async with bench(Settings(times=TIMES)) as one:
        await call(one.peer(), "quick", key=None).done()
        assert await one.store.sessions() == []
        await call(one.peer(), "quick").done()
        await settle_down()
        [hidden] = await one.store.sessions()
        assert hidden.startswith(HIDDEN)
        await asyncio.sleep(KEPT_SECONDS + 5)
        assert await one.store.sessions() == []
        assert (one.noted("session.opened"), one.noted("session.closed")) == (0, 0)


@front_test
async def test_a_client_that_leaves_before_its_call_starts_runs_nothing_and_leaves_its_key_free() -> None:
    async with bench(Settings(times=TIMES)) as one:
        claim, claimed = one.store.claim, asyncio.Event()

        async def slow(*given: Any) -> Any:
            await claimed.wait()
            return await claim(*given)

        with patch.object(one.store, "claim", slow):
            first = call(one.peer(), "quick")
            await settle_down()
            first.leave()
            await settle_down()
            claimed.set()
            await first.done()
        assert one.runs == []
        assert (await call(one.peer(), "quick", id=2).done()).json["id"] == 2
        assert one.runs == ["quick"]


@front_test
async def test_a_claim_that_the_store_has_lost_does_not_start_a_second_run_in_its_process() -> None:
    """A failover loses the claim of the first request while its reply is on the way; its repeat claims the key again."""
    async with bench(Settings(times=TIMES)) as one:
        claim, claimed, replied = one.store.claim, asyncio.Event(), asyncio.Event()

        async def late(*given: Any) -> Any:
            result = await claim(*given)
            if isinstance(result, Claimed):
                claimed.set()
                await replied.wait()
            return result

        with patch.object(one.store, "claim", late):
            first = call(one.peer())
            await claimed.wait()
        [hidden] = await one.store.sessions()
        await one.store.close(hidden, SessionInput.EVICTED)
        repeat = call(one.peer(), id=2)
        await runs(one)
        replied.set()
        await settle_down()
        one.release.set()
        found = [answer(await each.done()) for each in (first, repeat)]
        assert [each["id"] for each in found] == [1, 2]
        assert one.runs == ["held"]
        await settle_down()
        assert not one.noted("work.failed")


@front_test
async def test_a_repeat_after_its_kept_answer_was_dropped_gets_the_reason_and_does_not_run() -> None:
    async with served("here") as (one, p, _):
        one.release.set()
        assert "result" in answer(await call(p).done())
        await settle_down()
        store: Any = one.engine.store
        [session] = [doc for key, doc in store._sessions.items() if key.startswith(HIDDEN)]
        assert drop_finished(session)
        again = answer(await call(p, id=2).done())["error"]
        assert (again["code"], "executed already" in again["message"]) == (OUTCOME_UNKNOWN, True)
        assert one.runs == ["held"]


@pytest.mark.parametrize("fault", ["attach", "read", "cancelled"])
@front_test
async def test_a_repeat_that_could_not_read_the_kept_answer_leaves_no_reader(fault: str) -> None:
    async with served("here") as (one, p, _):
        first = await call(p, "quick").done()
        await settle_down()
        store: Any = one.engine.store
        attach, read, begun = store.attach, store.read, asyncio.Event()

        async def broken(*args: Any, **more: Any) -> Any:
            await (attach if fault == "attach" else read)(*args, **more)
            begun.set()
            await asyncio.sleep(1 if fault == "cancelled" else 0)
            raise StoreUnavailable("the reply is lost, on purpose")

        with patch.object(store, "attach" if fault == "attach" else "read", broken):
            again = call(p, "quick", id=2)
            await begun.wait()
            if fault == "cancelled":
                again.task.cancel()
            await asyncio.wait([again.task])
        await asyncio.sleep(2)
        [session] = [doc for key, doc in store._sessions.items() if key.startswith(HIDDEN)]
        assert session.readers == 0
        assert (await call(p, "quick", id=3).done()).json["result"] == first.json["result"]


@front_test
async def test_an_answer_that_a_repeat_has_taken_leaves_its_end_too_when_it_is_dropped() -> None:
    async with served("here") as (one, p, _):
        one.release.set()
        for number in (1, 2, 3):
            assert "result" in answer(await call(p, id=number).done())
            await settle_down()
        store: Any = one.engine.store
        [session] = [doc for key, doc in store._sessions.items() if key.startswith(HIDDEN)]
        assert drop_finished(session)
        again = answer(await call(p, id=4).done())["error"]
        assert (again["code"], "executed already" in again["message"]) == (OUTCOME_UNKNOWN, True)
        assert one.runs == ["held"]


def beside(key: str) -> str:
    """Return a key whose calls have the same hidden session."""

    def place(name: str) -> int:
        return sha256(name.encode()).digest()[0] % 16

    return next(name for name in map(str, range(1_000)) if place(name) == place(key))


@front_test
async def test_a_cancellation_is_not_lost_while_a_repeat_reads_a_kept_answer_of_the_same_place() -> None:
    async with served("elsewhere") as (one, p, q):
        other = beside("k")
        await call(p, "quick", key=other, id=5).done()
        first = call(p)
        await runs(one, 2)
        read, begun, goes_on = one.engine.store.read, asyncio.Event(), asyncio.Event()

        async def slow(*args: Any, **more: Any) -> Any:
            begun.set()
            await goes_on.wait()
            return await read(*args, **more)

        with patch.object(one.engine.store, "read", slow):
            again = call(p, "quick", key=other, id=6)
            await begun.wait()
            headers = {"mcp-protocol-version": "2026-07-28", NAME: "k"}
            await q.post(notification("notifications/cancelled", {"requestId": 1}), headers=headers).done()
            await asyncio.sleep(1)
            goes_on.set()
            await again.done()
        await first.done()
        assert answer(first)["error"]["code"] == REQUEST_CANCELLED


@front_test
async def test_a_replica_that_stops_while_it_reads_a_kept_answer_leaves_the_answers_to_the_others() -> None:
    async with replicas(2, times=TIMES) as (one, two):
        await call(one.peer(), "quick", id=5).done()
        await settle_down()
        read, begun = one.engine.store.read, asyncio.Event()

        async def slow(*args: Any, **more: Any) -> Any:
            begun.set()
            await asyncio.sleep(0.05)
            return await read(*args, **more)

        with patch.object(one.engine.store, "read", slow):
            again = call(one.peer(), "quick", id=6)
            await begun.wait()
            await one.engine.aclose()
            await asyncio.wait([again.task])
        repeat = await call(two.peer(), "quick", id=7).done()
        assert answer(repeat)["result"]
        assert len(one.runs) + len(two.runs) == 1
