"""Traces: the spans of a server in both eras, where their context comes from, and which earlier work they link to."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.trace import SpanKind

from limpet import Client, Context, Process, Server
from limpet.asks import InputRequired, Want
from limpet.config import Settings
from limpet.errors import McpError, ToolError
from limpet.ops.figures import Figures
from limpet.ops.operated import Operated
from limpet.ports import spans_of
from limpet.protocol.patience import HandOverTime
from tests.asgi import Peer
from tests.messages import metadata, request
from tests.spans import OTHER, PARENT, TRACE, Spans, is_below, linked, span_id, trace_of, traced
from tests.support import async_test, until

ERAS = ["sessions", "sessionless"]
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.fixture
def spans() -> Iterator[Spans]:
    with traced() as found:
        yield found


HAND_OVER = pytest.mark.parametrize("hand_over", ["off", 3600], ids=["", "hand-over"])
"""A call that can be handed over has two exchanges, and the same spans."""


class Slow(Server):
    """A server whose tool `slow` waits for a test."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.going = asyncio.Event()


def a_server(store: str | None = None, hand_over: HandOverTime = "off") -> Slow:
    server = Slow("traced", store=store, hand_over=hand_over)

    @server.tool
    async def echo(text: str) -> str:
        with trace.get_tracer("author").start_as_current_span("author's own"):
            return text

    @server.tool
    def in_thread() -> str:
        with trace.get_tracer("author").start_as_current_span("in a thread"):
            return str(baggage.get_baggage("tenant"))

    @server.tool
    async def refuse() -> str:
        raise ToolError("private words")

    @server.tool
    async def crash() -> str:
        raise McpError(-32050, "private words")

    @server.tool
    async def interview(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", FORM)
        return str(answer)

    @server.tool
    async def by_hand(ctx: Context) -> Any:
        if ctx.request_state is None:
            return InputRequired(requests={"name": Want.form("Your name?", FORM)}, state="began")
        return "again"

    @server.tool
    async def slow(ctx: Context) -> str:
        await ctx.progress(1)
        await server.going.wait()
        return "done"

    return server


async def answers(*_: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": "Ada"}}


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_the_spans_of_requests_have_the_name_that_an_operator_gave_the_server(
    era: str, spans: Spans
) -> None:
    server = a_server()
    server.label = "files"
    async with Client(server, protocol_version=era) as client:
        await client.call_tool("echo", {"text": "x"})
    named = [
        (span.attributes or {}).get("limpet.server") for span in spans.all() if span.kind is SpanKind.SERVER
    ]
    assert named
    assert set(named) == {"files"}


# Kinds of spans


@HAND_OVER
@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_call_has_spans_for_request_and_handler_and_the_author_s_spans_are_below(
    era: str, hand_over: HandOverTime, spans: Spans
) -> None:
    async with Client(a_server(hand_over=hand_over), protocol_version=era) as client:
        await client.call_tool("echo", {"text": "private words"})
    sent, handled = spans.one("tools/call echo", "CLIENT"), spans.one("handler echo")
    received, own = spans.one("tools/call echo", "SERVER"), spans.one("author's own")
    assert is_below(received, sent)
    assert is_below(handled, received)
    assert is_below(own, handled)
    assert handled.kind.name == "INTERNAL"
    attributes = dict(received.attributes or {})
    session = attributes.pop("limpet.session", None)
    assert (session is None) == (era == "sessionless")
    assert attributes.pop("jsonrpc.request.id")
    assert attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "echo",
        "gen_ai.operation.name": "execute_tool",
        "network.transport": "pipe",
        "mcp.protocol.version": "2025-11-25" if era == "sessions" else "2026-07-28",
    }
    assert "private words" not in "".join(span.to_json() for span in spans.all())


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_failed_call_says_how_and_not_why(era: str, spans: Spans) -> None:
    async with Client(a_server(), protocol_version=era, raise_on_error=False) as client:
        await client.call_tool("refuse")
        with pytest.raises(McpError):
            await client.call_tool("crash")
        with pytest.raises(McpError):
            await client.request("unheard/of")
    for kind in ("CLIENT", "SERVER"):
        refused, crashed = spans.one("tools/call refuse", kind), spans.one("tools/call crash", kind)
        assert (refused.attributes or {})["error.type"] == "tool_error"
        assert (crashed.attributes or {})["error.type"] == "-32050"
        assert (crashed.attributes or {})["rpc.response.status_code"] == "-32050"
        assert {span.status.status_code.name for span in (refused, crashed)} == {"ERROR"}
        assert (spans.one("other", kind).attributes or {})["error.type"] == "-32601"
    assert "private words" not in "".join(span.to_json() for span in spans.all())


@async_test
async def test_initialize_has_a_span(spans: Spans) -> None:
    async with Client(a_server(), protocol_version="sessions"):
        pass
    opened = spans.one("initialize", "SERVER")
    assert (opened.attributes or {})["mcp.protocol.version"] == "2025-11-25"
    assert len(str((opened.attributes or {})["limpet.session"])) == 8


@async_test
async def test_a_call_in_stateless_mode_has_no_span_of_its_session(spans: Spans) -> None:
    server = Server("stateless", settings=Settings(stateless=True))

    @server.tool
    def hello() -> str:
        return "hello"

    async with aclosing(server.engine):
        answer = await Peer(server.asgi()).post(request(1, "tools/call", {"name": "hello"})).done()
        assert answer.status == 200
        assert spans.named("tools/call hello", "SERVER")
        assert not spans.named("initialize")


@HAND_OVER
@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_question_has_a_span_below_the_handler_and_a_retry_links_to_the_first_request(
    era: str, hand_over: HandOverTime, spans: Spans
) -> None:
    server = a_server(hand_over=hand_over)
    async with Client(server, protocol_version=era, elicitation=answers) as client:
        await client.call_tool("interview")
    asked, handled = spans.one("elicitation/create"), spans.one("handler interview")
    assert asked.kind.name == "CLIENT"
    assert is_below(asked, handled)
    requests = spans.named("tools/call interview", "SERVER")
    first = min(requests, key=lambda span: span.start_time or 0)
    assert is_below(handled, first)
    if era == "sessionless":
        (retry,) = [span for span in requests if span is not first]
        assert linked(retry) == [span_id(first)]
        assert handled.end_time is not None
        assert first.end_time is not None
        assert first.end_time < handled.end_time, "the first round ended with the question"
    else:
        assert requests == [first]


@async_test
async def test_a_retry_that_starts_again_links_to_the_request_that_got_the_state(spans: Spans) -> None:
    async with Client(a_server(), protocol_version="sessionless", elicitation=answers) as client:
        assert (await client.call_tool("by_hand")).text == "again"
    first, retry = sorted(spans.named("tools/call by_hand", "SERVER"), key=lambda span: span.start_time or 0)
    assert linked(retry) == [span_id(first)]


# Context


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_the_context_of_meta_is_the_parent_and_that_of_the_headers_a_link(
    era: str, spans: Spans
) -> None:
    peer = await _peer(a_server(), era)
    await _call(peer, era, {"traceparent": PARENT}, {"traceparent": OTHER})
    await _call(peer, era, {}, {"traceparent": OTHER})
    by_meta, by_header = spans.named("tools/call echo", "SERVER")
    assert trace_of(by_meta) == TRACE
    assert linked(by_meta) == [int("2" * 16, 16)]
    assert trace_of(by_header) == "1" * 32
    assert linked(by_header) == []
    assert (by_header.attributes or {})["network.transport"] == "tcp"


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_without_meta_the_span_of_the_host_is_the_parent(era: str, spans: Spans) -> None:
    peer = await _peer(a_server(), era)
    with trace.get_tracer("host").start_as_current_span("of the host"):
        await _call(peer, era, {}, {"traceparent": OTHER})
        await _call(peer, era, {"traceparent": PARENT}, {"traceparent": OTHER})
    host = spans.one("of the host")
    below, linking = spans.named("tools/call echo", "SERVER")
    assert is_below(below, host)
    assert trace_of(linking) == TRACE
    assert linked(linking) == [span_id(host)]


@async_test
async def test_baggage_reaches_the_handler_also_in_a_thread(spans: Spans) -> None:
    peer = await _peer(a_server(), "sessionless")
    answer = await _call(
        peer, "sessionless", {"traceparent": PARENT, "baggage": "tenant=one,x=%20y;p=1"}, tool="in_thread"
    )
    assert answer["result"]["content"][0]["text"] == "one"
    assert is_below(spans.one("in a thread"), spans.one("handler in_thread"))


HOSTILE: list[dict[str, Any]] = [
    {"traceparent": 7},
    {"traceparent": ["x"]},
    {"traceparent": PARENT + "-" + "x" * 10_000},
    {"traceparent": "00-" + "0" * 32 + "-00f067aa0ba902b7-01"},
    {"traceparent": PARENT.upper()},
    {"traceparent": PARENT + "\nx"},
    {"traceparent": "ff" + PARENT[2:]},
    {"baggage": "a=b,é=ü"},
    {"baggage": "," * 8_000},
    {"baggage": ",".join(f"k{number}=v" for number in range(1_000))},
    {"baggage": "a=" + "x" * 9_000},
    {"baggage": "no value"},
    {"baggage": "a=b\r\nwarning: forged"},
]


@async_test
async def test_a_hostile_context_is_ignored_without_a_log_line(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await _peer(a_server(), "sessionless")
    for meta in HOSTILE:
        spans.clear()
        with caplog.at_level(logging.DEBUG, logger="opentelemetry"):
            answer = await _call(peer, "sessionless", meta, tool="in_thread")
        assert answer["result"]["content"][0]["text"] == "None"
        assert spans.one("tools/call in_thread").parent is None
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


@async_test
async def test_a_hostile_tracestate_does_not_cost_the_parent(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await _peer(a_server(), "sessionless")
    for state in ("a=b" + ",c=d" * 40, "UPPER=x", "a=\x7f", "a=" + "x" * 600, "=x", "a"):
        spans.clear()
        with caplog.at_level(logging.DEBUG, logger="opentelemetry"):
            await _call(peer, "sessionless", {"traceparent": PARENT, "tracestate": state})
        span = spans.one("tools/call echo", "SERVER")
        assert span.parent is not None
        assert trace_of(span) == TRACE
        assert not span.parent.trace_state
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


@async_test
async def test_a_hostile_name_is_bounded_in_a_span(spans: Spans) -> None:
    async with Client(a_server(), protocol_version="sessionless") as client:
        for name in ("x" * 10_000, "tools\ncall"):
            with pytest.raises(McpError):
                await client.call_tool(name)
    assert max(len(span.name) for span in spans.all()) < 200


# Resumes and repeats, replicas


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
@async_test
async def test_a_resumed_stream_links_to_its_request_also_at_another_replica(
    store: str, spans: Spans, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/store" if store == "sqlite" else store
    server = a_server(url)
    other = a_server(url) if store == "sqlite" else server
    peer = Peer(server.asgi())
    async with aclosing(server.engine), aclosing(other.engine):
        await peer.initialize()
        call = peer.post(
            request(1, "tools/call", {"name": "slow", "_meta": {"progressToken": 1, "traceparent": PARENT}})
        )
        await call.until(1)
        await call.cut()
        elsewhere = Peer(other.asgi())
        elsewhere.session, elsewhere.version = peer.session, peer.version
        again = elsewhere.get(call.ids[-1])
        await again.begun()
        server.going.set()
        await again.done()
        assert again.messages[-1]["result"]["content"][0]["text"] == "done"
        resumed, first = spans.one("resume"), spans.one("tools/call slow", "SERVER")
        assert linked(resumed) == [span_id(first)]
        assert trace_of(first) == TRACE
        forged = elsewhere.get(f"{'0' * 24}-{'B' * 32}.1.1")
        assert (await forged.done()).status == 400
        assert [linked(span) for span in spans.named("resume")] == [[span_id(first)], []]


@async_test
async def test_a_repeated_post_links_to_the_call_that_it_repeats(spans: Spans) -> None:
    server = a_server()
    peer = Peer(server.asgi())
    async with aclosing(server.engine):
        await peer.initialize()
        message = request(1, "tools/call", {"name": "slow", "_meta": {"progressToken": 1}})
        call = peer.post(message)
        await call.until(1)
        await call.cut()
        again = peer.post(message)
        await again.until(1)
        server.going.set()
        await again.done()
        first, repeat = sorted(
            spans.named("tools/call slow", "SERVER"), key=lambda span: span.start_time or 0
        )
        assert linked(repeat) == [span_id(first)]
        assert len(spans.named("handler slow")) == 1


@async_test
async def test_a_retry_at_another_replica_is_traced_where_the_call_is_parked(
    spans: Spans, tmp_path: Path
) -> None:
    here, there = (a_server(f"sqlite:///{tmp_path}/store") for _ in range(2))
    async with aclosing(here.engine), aclosing(there.engine):
        await asyncio.gather(here.engine.ensure_started(), there.engine.ensure_started())
        meta = metadata(capabilities={"elicitation": {}})
        first = (
            await Peer(here.asgi())
            .sessionless("tools/call", {"name": "interview"}, meta={**meta, "traceparent": PARENT})
            .done()
        )
        asked = first.json["result"]
        (name,) = asked["inputRequests"]
        retry = {
            "name": "interview",
            "requestState": asked["requestState"],
            "inputResponses": {name: await answers()},
        }
        last = (
            await Peer(there.asgi())
            .sessionless("tools/call", retry, meta={**meta, "traceparent": OTHER})
            .done()
        )
        assert "Ada" in str(last.json)
        began, went_on = sorted(
            spans.named("tools/call interview", "SERVER"), key=lambda span: span.start_time or 0
        )
        assert trace_of(began) == TRACE
        assert trace_of(went_on) == "1" * 32, "a forwarded request keeps its context"
        assert linked(went_on) == [span_id(began)]
        assert len(spans.named("handler interview")) == 1


@pytest.mark.parametrize("is_watched", [False, True])
@async_test
async def test_commands_of_a_shared_store_have_spans_within_requests_only(
    spans: Spans, tmp_path: Path, *, is_watched: bool
) -> None:
    server = a_server(f"sqlite:///{tmp_path}/store")
    if is_watched:
        server.operate(Operated(figures=Figures()))
    peer = await _peer(server, "sessions")
    spans.clear()
    await _call(peer, "sessions", {"traceparent": PARENT})
    # The answer does not wait for the store.
    await until(lambda: bool(spans.named("tools/call echo")))
    claimed, settled = spans.one("store claim"), spans.one("store settle")
    asked = spans.one("tools/call echo")
    assert is_below(claimed, asked)
    assert is_below(settled, asked)
    assert (claimed.attributes or {})["db.system.name"] == "sqlite"
    assert (asked.attributes or {})["limpet.replica"] == server.engine.store.replica
    await server.engine.aclose()
    assert all(trace_of(span) == TRACE for span in spans.all()), "sweeps and leases have no spans"


@async_test
async def test_a_refused_call_has_a_failed_span(spans: Spans) -> None:
    server = a_server()
    peer = Peer(server.asgi())
    async with aclosing(server.engine):
        await peer.initialize()
        message = request(1, "tools/call", {"name": "slow", "_meta": {"progressToken": 1}})
        first = peer.post(message)
        await first.until(1)
        refused = await peer.call(1, "echo").done()
        assert refused.status == 400
        assert (spans.one("tools/call echo").attributes or {})["error.type"] == "-32600"
        server.going.set()
        await first.done()


# Upstream


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_request_to_the_server_behind_has_a_span_and_its_context(era: str, spans: Spans) -> None:
    behind = Path(__file__).with_name("reports_meta.py")
    async with Client(Process([sys.executable, str(behind)]), protocol_version=era) as client:
        told = (await client.call_tool("context")).text
    sent = max(spans.named("tools/call context", "CLIENT"), key=lambda span: span.start_time or 0)
    assert is_below(sent, spans.one("handler context"))
    assert told.startswith(f"00-{trace_of(sent)}-{span_id(sent):016x}-")
    assert (sent.attributes or {})["network.transport"] == "pipe"


@async_test
async def test_a_request_that_is_forwarded_to_its_home_keeps_its_context(
    spans: Spans, tmp_path: Path
) -> None:
    behind = Path(__file__).with_name("reports_meta.py")
    home, other = (
        Process([sys.executable, str(behind)], store=f"sqlite:///{tmp_path}/store", namespace="n")
        for _ in range(2)
    )
    peer, elsewhere = Peer(home.asgi()), Peer(other.asgi())
    async with aclosing(home.engine), aclosing(other.engine):
        await peer.initialize()
        elsewhere.session, elsewhere.version = peer.session, peer.version
        spans.clear()
        answer = await _call(elsewhere, "sessions", {"traceparent": PARENT}, tool="context")
        await until(lambda: len(spans.named("tools/call context", "SERVER")) == 2)
        sent, handled = spans.one("tools/call context", "CLIENT"), spans.one("handler context")
        (at_home,) = [span for span in spans.named("tools/call context", "SERVER") if is_below(handled, span)]
        (arrived,) = [span for span in spans.named("tools/call context", "SERVER") if span is not at_home]
        assert is_below(sent, handled)
        assert answer["result"]["content"][0]["text"].startswith(f"00-{TRACE}-{span_id(sent):016x}-")
        assert trace_of(at_home) == trace_of(arrived) == TRACE
        assert linked(at_home) == [span_id(arrived)]
        assert (at_home.attributes or {})["limpet.replica"] == home.engine.store.replica


# Off


def test_a_server_that_is_not_traced_imports_nothing_of_opentelemetry() -> None:
    program = """
import asyncio, sys
from limpet import Client, Server
server = Server("plain")
@server.tool
async def echo() -> str:
    return "x"
async def main():
    for version in ("sessions", "sessionless"):
        async with Client(server, protocol_version=version) as client:
            await client.call_tool("echo")
asyncio.run(main())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@async_test
async def test_tracing_is_off_without_a_tracer_provider() -> None:
    server = a_server()
    assert spans_of(server.engine.observer) is None
    async with Client(server, protocol_version="sessions") as client:
        await client.call_tool("echo", {"text": "x"})


async def _peer(server: Server, era: str) -> Peer:
    peer = Peer(server.asgi())
    if era == "sessions":
        await peer.initialize()
    return peer


async def _call(
    peer: Peer,
    era: str,
    meta: dict[str, Any],
    headers: dict[str, str | None] | None = None,
    tool: str = "echo",
) -> Any:
    params: dict[str, Any] = {"name": tool, "arguments": {"text": "x"} if tool == "echo" else {}}
    if era == "sessionless":
        call = peer.sessionless("tools/call", params, meta={**metadata(), **meta}, headers=headers or {})
    else:
        call = peer.post(request(1, "tools/call", {**params, "_meta": meta}), headers=headers)
    await call.done()
    await until(lambda: call.complete)
    return call.json
