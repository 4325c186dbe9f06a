"""Metrics: samples of live servers, their sum over processes, and a text that Prometheus's own parser accepts."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from limpet import Context, Server
from limpet.client import Client
from limpet.errors import AskTimeout, StoreUnavailable
from limpet.ops.figures import BOUNDS, NAMES, Durations, Figures
from limpet.ops.loop_delay import LoopDelay
from limpet.ops.metrics import families
from limpet.ops.metrics.families import FAMILIES, Family
from limpet.ops.metrics.reading import samples_of
from limpet.ops.metrics.samples import LABEL_SIZE, Sample, histogram, merged, number
from limpet.ops.metrics.text import prometheus_text
from limpet.ops.operated import Operated
from limpet.stores.base import Store
from tests.stores import ScriptedStore
from tests.support import async_test, until, virtual_test

Parsed = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(samples: Sequence[Sample]) -> Parsed:
    """Return every line of the text by its name and labels. The parser is Prometheus's own."""
    found: Parsed = {}
    for family in text_string_to_metric_families(prometheus_text(samples).decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def value(found: Parsed, name: str, **labels: str) -> float:
    """Return the one value whose labels include these."""
    wanted = set(labels.items())
    values = [value for (one, pairs), value in found.items() if one == name and wanted <= pairs]
    assert len(values) == 1, (name, labels, values)
    return values[0]


def operated_server(store: Store | None = None) -> tuple[Server, Operated]:
    server, operated = Server("metered", store=store), Operated(figures=Figures())
    server.operate(operated)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    @server.tool
    async def question(ctx: Context) -> str:
        try:
            await ctx.elicit("Well?", {"type": "object", "properties": {}}, timeout=1)
        except AskTimeout:
            return "no answer"
        return "answer"

    return server, operated


async def read(server: Server, operated: Operated) -> Parsed:
    return parsed(await samples_of([("metered", server.engine, operated)], LoopDelay()))


# Live servers


@pytest.mark.parametrize("mode", ["sessions", "sessionless"])
@async_test
async def test_calls_are_counted_by_tool_era_and_outcome(mode: str) -> None:
    server, operated = operated_server()
    async with Client(server, protocol_version=mode) as client:
        for _ in range(3):
            await client.call_tool("echo", {"text": "x"})
        hanging = asyncio.ensure_future(client.call_tool("hang"))
        await until(lambda: [one.began is not None for one in server.engine.live_exchanges()] == [True])
        found = await read(server, operated)
        labels = {
            "server": "metered",
            "mcp_method_name": "tools/call",
            "gen_ai_tool_name": "echo",
            "era": "session" if mode == "sessions" else "sessionless",
            "outcome": "ok",
        }
        assert value(found, f"{families.CALLS.name}_count", **labels) == 3
        assert value(found, f"{families.CALLS.name}_bucket", **labels, le="+Inf") == 3
        assert value(found, "limpet_exchanges", state="running") == 1
        assert value(found, "limpet_exchanges_waiting", waits_for="handler") == 1
        assert value(found, "limpet_exchange_oldest_seconds", waits_for="handler") > 0
        assert value(found, "limpet_exchange_oldest_seconds", waits_for="ask") == 0
        if mode == "sessions":
            # The others are those of the client's idempotency keys, up to one for each.
            assert value(found, "limpet_sessions", state="attached") == 1
        hanging.cancel()
        await until(lambda: not server.engine.live_exchanges())
        found = await read(server, operated)
        assert value(found, f"{families.CALLS.name}_count", outcome="cancelled", error_type="cancelled") == 1
        assert value(found, "limpet_exchange_oldest_seconds", waits_for="handler") == 0
    found = await read(server, operated)
    assert value(found, f"{families.SESSION_SECONDS.name}_count") == (mode == "sessions")
    assert value(found, "limpet_session_changes_total", change="opened") == (mode == "sessions")
    assert value(found, "limpet_session_changes_total", change="closed") == (mode == "sessions")


@async_test
async def test_everything_that_a_server_reports_is_in_the_table_and_counters_begin_with_zero() -> None:
    server, operated = operated_server(ScriptedStore(is_shared=True))
    async with Client(server) as client:
        await client.ping()
        samples = await samples_of([("metered", server.engine, operated)], LoopDelay())
    names = {sample.family for sample in samples}
    assert names <= set(FAMILIES)
    assert all(len(sample.labels) == len(FAMILIES[sample.family].labels) for sample in samples)
    # By client, and so only there once a client has caused one; and the health of a server behind, which is not there.
    assert set(FAMILIES) - names == {
        families.DUPLICATES.name,
        families.UPSTREAM_WORKED.name,
        families.UPSTREAM_FAILED.name,
    }
    assert parsed(samples)


@async_test
async def test_store_calls_are_timed_and_their_errors_counted_if_the_store_is_outside() -> None:
    store = ScriptedStore(is_shared=True)
    server, operated = operated_server(store)
    async with Client(server, protocol_version="sessions") as client:
        await client.call_tool("echo", {"text": "x"})
        found = await read(server, operated)
        assert value(found, "limpet_store_duration_seconds_count", part="sessions") >= 1
        assert value(found, "limpet_store_duration_seconds_count", part="exchanges") >= 2
        assert value(found, "limpet_store_errors_total", part="sessions", error="unavailable") == 0
        assert value(found, "limpet_store_unreachable") == 0
        assert value(found, "limpet_replicas") == 1
        store.fail("sessions", "totals")
        with pytest.raises(StoreUnavailable):
            await server.engine.store.sessions()
        found = await read(server, operated)
        assert value(found, "limpet_store_errors_total", part="sessions", error="unavailable") == 1
        assert value(found, "limpet_store_unreachable") == 1


@async_test
async def test_the_memory_store_keeps_its_short_path_and_is_not_timed() -> None:
    server, operated = operated_server()
    async with Client(server, protocol_version="sessions") as client:
        await client.call_tool("echo", {"text": "x"})
        assert server.engine.runtime.at_once is not None
        found = await read(server, operated)
        assert not [name for name, _ in found if name.startswith("limpet_store_duration")]


def test_a_server_without_figures_has_its_own_store() -> None:
    store = ScriptedStore()
    server = Server("plain", store=store)
    server.operate(Operated())
    assert server.engine.store is store


@virtual_test
async def test_an_ask_is_counted_while_it_waits_and_when_it_was_not_answered() -> None:
    server, operated = operated_server(ScriptedStore())
    waiting = asyncio.Event()

    async def silent(*_: object) -> Any:
        waiting.set()
        await asyncio.Event().wait()

    async with Client(server, protocol_version="sessions", elicitation=silent) as client:
        asking = asyncio.ensure_future(client.call_tool("question"))
        await waiting.wait()
        found = await read(server, operated)
        assert value(found, "limpet_asks", era="session") == 1
        assert value(found, "limpet_exchanges_waiting", waits_for="ask") == 1
        await asking
        found = await read(server, operated)
        assert value(found, "limpet_asks", era="session") == 0
        assert value(found, "limpet_asks_total") == 1
        assert value(found, "limpet_asks_answered_total") == 0


# Hostile names


HOSTILE = ['"} 1\nfake 2\n', "\\", "\\n\\", "\x00\x7f\u202e\u2028", "{", "a" * 10_000, "", "#", "é", "\ud800"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_one_label_of_one_line(name: str) -> None:
    samples = merged([[number(families.DUPLICATES, 3, "metered", name)]])
    found = parsed(samples)
    ((line, labels),) = found
    assert line == "limpet_duplicates_refused_total"
    assert {key for key, _ in labels} <= {"server", "client"}
    assert len(prometheus_text(samples)) < 6 * LABEL_SIZE + 300


@given(st.lists(st.text(), max_size=20))
def test_any_names_make_a_text_that_is_valid_and_has_no_line_twice(names: list[str]) -> None:
    samples = merged([[number(families.DUPLICATES, 1, "metered", name) for name in names]])
    assert sum(parsed(samples).values()) == len(names)


def test_names_of_tools_and_clients_that_do_not_exist_make_no_further_rows() -> None:
    figures = Figures()
    for number_ in range(10 * NAMES):
        figures.call("tools/call", f"guess {number_}", "session", "error", 0.0)
        figures.call("tools/call", f"guess {number_}", "session", "tool_error", 0.0)
    figures.know("real")
    figures.call("tools/call", "real", "session", "error", 0.0)
    assert sorted(labels[1:] for labels, _ in figures.calls()) == [
        ("other", "session", "error"),
        ("other", "session", "tool_error"),
        ("real", "session", "error"),
    ]


# Merging and text


def test_samples_of_workers_are_summed_or_the_largest_is_taken() -> None:
    durations = Durations()
    durations.add(0.003)
    one = [
        number(families.REAPED, 2, "a"),
        number(families.OLDEST, 7.5, "a", "handler"),
        histogram(families.STORE_SECONDS, durations, "a", "sessions"),
    ]
    two = [
        number(families.REAPED, 3, "a"),
        number(families.OLDEST, 1.5, "a", "handler"),
        histogram(families.STORE_SECONDS, durations, "a", "sessions"),
        number(families.REAPED, 1, "b"),
    ]
    # As workers send them to their parent.
    decoded = [msgspec.json.decode(msgspec.json.encode(part), type=list[Sample]) for part in (one, two)]
    found = parsed(merged(decoded))
    assert value(found, "limpet_exchanges_reaped_total", server="a") == 5
    assert value(found, "limpet_exchanges_reaped_total", server="b") == 1
    assert value(found, "limpet_exchange_oldest_seconds", waits_for="handler") == 7.5
    assert value(found, "limpet_store_duration_seconds_count", part="sessions") == 2
    assert value(found, "limpet_store_duration_seconds_bucket", part="sessions", le="0.002") == 0
    assert value(found, "limpet_store_duration_seconds_bucket", part="sessions", le="0.005") == 2
    assert value(found, "limpet_store_duration_seconds_sum", part="sessions") == pytest.approx(0.006)


def test_a_metric_of_another_release_is_left_out() -> None:
    known = number(families.REAPED, 1, "a")
    unknown = [Sample("limpet_new_total", ("a",), 1.0), Sample(families.REAPED.name, ("a", "more"), 1.0)]
    assert merged([[known, *unknown]]) == [known]


@given(st.lists(st.floats(0, 1000), min_size=1))
def test_the_buckets_of_a_histogram_are_cumulative(seconds: list[float]) -> None:
    durations = Durations()
    for one in seconds:
        durations.add(one)
    found = parsed([histogram(families.LOOP_DELAYS, durations)])
    for bound in (*BOUNDS, math.inf):
        label = "+Inf" if bound == math.inf else f"{bound:g}"
        assert value(found, "limpet_loop_delay_seconds_bucket", le=label) == sum(s <= bound for s in seconds)
    assert value(found, "limpet_loop_delay_seconds_count") == len(seconds)
    assert value(found, "limpet_loop_delay_seconds_sum") == pytest.approx(sum(seconds))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
def test_names_follow_the_rules_of_prometheus(family: Family) -> None:
    assert family.name.startswith(("limpet_", "mcp_server_", "process_"))
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert family.help.endswith(".")
    assert "\n" not in family.help
    assert "le" not in family.labels


@virtual_test
async def test_a_blocked_loop_is_seen_as_a_delay() -> None:
    delay, loop = LoopDelay(), asyncio.get_running_loop()
    delay.start()
    await asyncio.sleep(1.5)
    assert delay.last == 0.0
    # Between two timers the loop's clock jumps, as after a function that has blocked it.
    loop._now += 3.0  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    delay.stop()
    assert delay.last == pytest.approx(2.5)
    assert delay.largest == delay.last
    assert delay.durations.count == 2
