"""A link to a URL: a server that does not answer, the headers, and what is kept of a stream."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import msgspec
import pytest
from typing_extensions import override

from limpet.auth.authorizer import Authorizer
from limpet.errors import ANSWER_DROPPED, Broken, OutcomeUnknown
from limpet.ports import Ports, SystemClock, SystemRandom
from limpet.testing import NotingObserver
from limpet.transports.http import HttpAnswer, HttpTransport
from limpet.upstream import http_link
from limpet.upstream.backoff import Backoff
from limpet.upstream.duplex_link import DuplexLink, ServerDuplex
from limpet.upstream.http_link import HttpLink
from limpet.upstream.http_server import HttpServer
from limpet.upstream.incoming import IncomingRequests
from limpet.upstream.link import Receiver
from limpet.upstream.pending import OutgoingRequest
from limpet.upstream.settings import ClientLimits, ClientTimes
from limpet.upstream.sse_duplex import SseDuplex
from limpet.wire.jsonrpc import decode, error_message, notification_message, request_message, result_message
from limpet.wire.sse import EventParser, ReceivedEvent, event
from tests.support import virtual_test


class SilentServer:
    """Accepts every HTTP request and answers none."""

    times = ClientTimes()

    def __init__(self) -> None:
        self.observer = NotingObserver()
        self.waiting = 0

    async def open(self, *_request: Any, **_options: Any) -> Any:
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1


@virtual_test
async def test_cancellations_to_a_server_that_does_not_answer_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_link, "UNSENT", 3)
    server = SilentServer()
    incoming = IncomingRequests(cast("Any", None), ClientLimits(), server.observer)
    receiver = Receiver(incoming, lambda *_: None, decode, server.observer)
    link = HttpLink(cast("HttpServer", server), receiver)
    link.is_sessionless = False
    for number in range(10):
        call = asyncio.create_task(link.request(OutgoingRequest(number, "tools/call", {})))
        await asyncio.sleep(1)
        call.cancel()
    await asyncio.sleep(1)
    assert server.waiting == 3
    assert len(server.observer.named("client.farewell_failed")) == 7
    await link.aclose(goodbye=False)
    await asyncio.sleep(1)
    assert server.waiting == 0


@virtual_test
async def test_a_result_on_another_stream_ends_the_wait_for_a_response() -> None:
    server = SilentServer()
    incoming = IncomingRequests(cast("Any", None), ClientLimits(), server.observer)
    link = HttpLink(cast("HttpServer", server), Receiver(incoming, lambda *_: None, decode, server.observer))
    for number, response in ((1, result_message(1, b"{}")), (2, error_message(2, -32_000, "no"))):
        call = asyncio.create_task(link.request(OutgoingRequest(number, "tools/call", {})))
        await asyncio.sleep(1)
        link.receiver.take(link, response)
        await asyncio.wait({call}, timeout=1)
        assert (call.done(), call.cancelled(), server.waiting) == (True, False, 0)
        assert str(call.exception() or call.result()) in {"{}", "no"}


@virtual_test
async def test_a_request_of_a_cancelled_task_gets_its_result_on_another_stream() -> None:
    server = SilentServer()
    incoming = IncomingRequests(cast("Any", None), ClientLimits(), server.observer)
    link = HttpLink(cast("HttpServer", server), Receiver(incoming, lambda *_: None, decode, server.observer))
    results: list[object] = []

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            results.append(await link.request(OutgoingRequest(1, "tools/call", {})))

    task = asyncio.create_task(clean_up())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.sleep(1)
    link.receiver.take(link, result_message(1, b"{}"))
    await asyncio.wait({task}, timeout=1)
    assert results == [{}]
    assert task.cancelled(), "by the first cancellation"


@virtual_test
async def test_a_call_that_is_cancelled_together_with_its_result_on_another_stream_is_cancelled() -> None:
    server = SilentServer()
    incoming = IncomingRequests(cast("Any", None), ClientLimits(), server.observer)
    link = HttpLink(cast("HttpServer", server), Receiver(incoming, lambda *_: None, decode, server.observer))
    call = asyncio.create_task(link.request(OutgoingRequest(1, "tools/call", {})))
    await asyncio.sleep(1)
    link.receiver.take(link, result_message(1, b"{}"))
    call.cancel()
    await asyncio.wait({call}, timeout=1)
    assert call.cancelled()


class HeaderServer:
    """Notes the headers of each HTTP request, and answers it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []

    async def open(self, _method: str, _url: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        self.seen.append(dict(headers))
        answer = HttpAnswer(cast("Any", None), 200, {b"mcp-session-id": [b"s1"]})
        answer.add(
            msgspec.json.encode({"jsonrpc": "2.0", "id": msgspec.json.decode(body)["id"], "result": {}})
        )
        answer.end()
        return answer


class Renewing:
    """Has another token for each request."""

    number = 0

    async def headers(self, _method: str, _url: str) -> dict[str, str]:
        self.number += 1
        return {"authorization": f"Bearer {self.number}"}


@pytest.mark.parametrize("authorizer", [None, Renewing()])
@virtual_test
async def test_each_request_of_a_session_has_the_headers_of_server_link_credentials_and_itself(
    authorizer: Renewing | None,
) -> None:
    recorder, observer = HeaderServer(), NotingObserver()
    server = HttpServer(
        "http://a.example/mcp", cast("HttpTransport", recorder), cast("Authorizer | None", authorizer),
        {"authorization": "static", "x-own": "1"}, ClientLimits(), ClientTimes(), Ports(SystemClock(), SystemRandom(), observer),
    )  # fmt: skip
    incoming = IncomingRequests(cast("Any", None), ClientLimits(), observer)
    link = HttpLink(server, Receiver(incoming, lambda *_: None, decode, observer))
    link.is_sessionless = False
    await link.request(OutgoingRequest(1, "initialize", {}))
    link.version = "2025-11-25"
    async with aclosing(link):
        for number in (2, 3):
            await link.request(OutgoingRequest(number, "tools/call", {}))
        await link.request(OutgoingRequest(4, "tools/call", {}, headers={"x-own": "2"}))
        common = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        session = {"mcp-session-id": "s1", "mcp-protocol-version": "2025-11-25"}
        tokens = [f"Bearer {number}" for number in (1, 2, 3, 4)] if authorizer else ["static"] * 4
        own = ["1", "1", "1", "2"]
        assert recorder.seen == [
            {**common, **(session if place else {}), "authorization": token, "x-own": one}
            for place, (token, one) in enumerate(zip(tokens, own, strict=True))
        ]


class Wire:
    """The connection of a response: whether it is read, and whether it was closed."""

    def __init__(self) -> None:
        self.is_read = True
        self.is_closed = False

    def pause(self) -> None:
        self.is_read = False

    def resume(self) -> None:
        self.is_read = True

    def abort(self) -> None:
        self.is_closed = True


class StreamServer:
    """Answers each HTTP request with an event stream, which the test fills."""

    limits = ClientLimits()
    times = ClientTimes()
    url = "http://a.example/sse"

    def __init__(self) -> None:
        self.observer = NotingObserver()
        self.clock = SystemClock()
        self.answers: list[tuple[HttpAnswer, Wire]] = []

    def backoff(self) -> Backoff:
        return Backoff(SystemRandom(), self.times.backoff)

    async def open(self, *_request: Any, **_options: Any) -> HttpAnswer:
        wire = Wire()
        answer = HttpAnswer(cast("Any", wire), 200, {b"content-type": [b"text/event-stream"]})
        self.answers.append((answer, wire))
        return answer


class SlowOwner:
    """Has room for messages after `reads` is set, and memory for so many bytes that are not taken."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.reads = asyncio.Event()
        self.kept = 0

    def room(self) -> Any:
        return None if self.reads.is_set() else self.reads.wait()

    def received(self, size: int) -> None:
        if size > self.memory:
            raise OutcomeUnknown(ANSWER_DROPPED)
        self.kept = size


def streamed(
    memory: int, reserve: Callable[[int], bool] | None = None
) -> tuple[StreamServer, HttpLink, SlowOwner]:
    server = StreamServer()
    incoming = IncomingRequests(cast("Any", None), ClientLimits(), server.observer)
    receiver = Receiver(incoming, lambda *_: None, decode, server.observer)
    receiver.reserve = reserve
    return server, HttpLink(cast("HttpServer", server), receiver), SlowOwner(memory)


@pytest.mark.parametrize("is_stream", [True, False])
@virtual_test
async def test_requests_of_the_server_are_charged_and_counted_in_a_json_body_as_in_a_stream(
    *, is_stream: bool
) -> None:
    observer, charged = NotingObserver(), list[int]()

    async def never(*_request: Any) -> object:
        return await asyncio.Event().wait()

    def charge(size: int) -> object:
        charged.append(size)
        return size

    class BatchServer(StreamServer):
        @override
        async def open(self, *request: Any, **_options: Any) -> HttpAnswer:
            sent = msgspec.json.decode(request[2])
            if "method" not in sent:
                refused.append(sent)
            asked = request_message(f"of {sent['id']}", "sampling/createMessage", {"x": "y" * 50_000})
            batch = b"[%b,%b]" % (asked, result_message(sent["id"], b"{}"))
            kind = b"text/event-stream" if is_stream else b"application/json"
            answer = HttpAnswer(cast("Any", Wire()), 200, {b"content-type": [kind]})
            answer.add(event(batch) if is_stream else batch)
            answer.end()
            return answer

    refused: list[dict[str, Any]] = []
    incoming = IncomingRequests(never, ClientLimits(incoming_bytes=99_000), observer, charge)
    link = HttpLink(cast("HttpServer", BatchServer()), Receiver(incoming, lambda *_: None, decode, observer))
    link.is_sessionless = False
    async with aclosing(incoming):
        for number in (1, 2):
            assert await link.request(OutgoingRequest(number, "tools/call", {})) == {}
        await asyncio.sleep(1)
        assert len(charged) == 1, "the second is over the limit of bytes"
        assert charged[0] > 50_000
        assert [one["id"] for one in refused] == ["of 2"]


LONG = event(notification_message("notifications/message", {"level": "info", "data": "x" * 9_000}))


@virtual_test
async def test_a_stream_is_not_read_while_its_messages_wait_for_a_slow_client_and_they_are_charged() -> None:
    server, link, owner = streamed(1_000_000)
    call = asyncio.create_task(link.request(OutgoingRequest(1, "tools/call", {}, owner=owner)))
    await asyncio.sleep(1)
    ((answer, wire),) = server.answers
    answer.add(LONG * 3)
    await asyncio.sleep(1)
    assert wire.is_read is False
    assert owner.kept >= 3 * len(LONG)
    owner.reads.set()
    await asyncio.sleep(1)
    assert bool(wire.is_read)
    assert owner.kept == 0
    answer.add(event(result_message(1, b"{}")))
    assert await call == {}


@virtual_test
async def test_a_call_ends_whose_messages_have_no_memory_before_a_slow_client() -> None:
    server, link, owner = streamed(20_000)
    call = asyncio.create_task(link.request(OutgoingRequest(1, "tools/call", {}, owner=owner)))
    await asyncio.sleep(1)
    ((answer, wire),) = server.answers
    answer.add(LONG * 3)
    with pytest.raises(OutcomeUnknown, match="dropped"):
        await call
    assert wire.is_closed


@virtual_test
async def test_an_endless_line_of_a_standalone_stream_takes_no_more_than_there_is_memory_for() -> None:
    kept: list[int] = []

    def reserve(size: int) -> bool:
        kept.append(size)
        return size < 100_000

    server, link, _ = streamed(0, reserve)
    link.is_sessionless = False
    await link.settled()
    answer, wire = server.answers[0]
    for _ in range(10):
        answer.add(b"x" * 20_000)
        await asyncio.sleep(0.01)
    assert wire.is_closed
    assert max(kept) == 100_000
    assert kept[-1] == 0, "the line that was dropped is not charged"
    assert server.observer.named("client.stream_broke")
    await link.aclose(goodbye=False)


@virtual_test
async def test_half_an_event_is_charged_until_its_stream_breaks() -> None:
    kept: list[int] = []

    def reserve(size: int) -> bool:
        kept.append(size)
        return True

    server, link, owner = streamed(1_000_000, reserve)
    link.is_sessionless = False
    await link.settled()
    call = asyncio.create_task(link.request(OutgoingRequest(1, "tools/call", {}, owner=owner)))
    await asyncio.sleep(1)
    (standalone, _), (answer, _) = server.answers
    answer.add(b"id: 1\n\n")
    await asyncio.sleep(1)
    for stream in (standalone, answer):
        stream.add(b"data: " + b"x" * 50_000)
    await asyncio.sleep(1)
    assert min(kept[-1], owner.kept) >= 50_000
    for stream in (standalone, answer):
        stream.broke(Broken("the connection broke"))
    await asyncio.sleep(60)
    assert (kept[-1], owner.kept) == (0, 0)
    assert not call.done(), "its stream was resumed"
    call.cancel()
    await link.aclose(goodbye=False)


@virtual_test
async def test_an_endless_line_of_the_oldest_transport_takes_no_more_than_there_is_memory_for() -> None:
    server, link, _ = streamed(0, lambda size: size < 100_000)
    duplex = SseDuplex(cast("HttpServer", server), link.receiver.keep)
    opening = asyncio.create_task(duplex.open())
    await asyncio.sleep(1)
    ((answer, wire),) = server.answers
    answer.add(b"event: endpoint\ndata: /post\n\n")
    await opening
    reading = asyncio.create_task(duplex.read())
    for _ in range(4):
        answer.add(b"x" * 20_000)
        await asyncio.sleep(1)
    assert not reading.done()
    answer.add(b"x" * 20_000)
    assert await reading == b""
    assert wire.is_closed


class Tracked(bytes):
    """Bytes that are counted while they exist."""

    alive = 0

    def __init__(self, *_data: object) -> None:
        Tracked.alive += 1

    def __del__(self) -> None:
        Tracked.alive -= 1


class TrackingParser(EventParser):
    """Its events have such bytes."""

    @override
    def feed(self, chunk: bytes) -> list[ReceivedEvent]:
        return [one._replace(data=Tracked(one.data)) for one in super().feed(chunk)]


@virtual_test
async def test_a_stream_that_waits_for_more_holds_nothing_that_it_has_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_link, "EventParser", TrackingParser)
    server, link, owner = streamed(1_000_000)
    call = asyncio.create_task(link.request(OutgoingRequest(1, "tools/call", {}, owner=owner)))
    await asyncio.sleep(1)
    ((answer, _),) = server.answers
    answer.add(Tracked(LONG * 3))
    await asyncio.sleep(1)
    assert Tracked.alive == 3, "the messages wait for the client, and the chunk is gone"
    owner.reads.set()
    await asyncio.sleep(1)
    assert Tracked.alive == 0
    answer.add(event(result_message(1, b"{}")))
    assert await call == {}


class OneMessage:
    """A duplex with one message."""

    exit_status = None
    last_words = ""

    def __init__(self) -> None:
        self.messages = [Tracked(notification_message("notifications/message", {"data": "x"}))]

    async def read(self) -> bytes:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop()

    async def aclose(self) -> None:
        return


@virtual_test
async def test_a_duplex_that_waits_for_more_holds_no_message() -> None:
    _, http, _ = streamed(0)
    duplex = OneMessage()
    async with aclosing(DuplexLink(cast("ServerDuplex", duplex), http.receiver, NotingObserver())):
        await asyncio.sleep(1)
        assert not duplex.messages
        assert Tracked.alive == 0
