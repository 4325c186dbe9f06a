"""Single requests on a connection of `serve`, byte by byte, on a transport that only records."""

import asyncio
import contextlib
import gc
import logging
import sys
import weakref
from email.utils import formatdate
from typing import Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import given

from limpet.config import Limits, Settings
from limpet.engine.engine import Engine
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.http1.channel import HIGH_WATER
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import KEEP_ALIVE, Deadlines
from limpet.fronts.http.http1.members import REFUSED, Members, Serve, date_of
from limpet.fronts.http.http1.parser import RequestParser
from limpet.fronts.http.read.body import AWAKE
from limpet.fronts.http.read.request import Application, Channel, RawRequest, Receive, Scope, Send
from limpet.fronts.http.write.answer import json_answer
from limpet.fronts.http.write.response import WaitingResponse
from limpet.ops.log import LogObserver
from limpet.ports import Observer, SilentObserver
from limpet.testing.back import ScriptedBack
from tests.http.paper import Paper, settled
from tests.support import virtual_test


class Public:
    """An application as a route that demands no principal."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def demand(self, _method: str) -> None:
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._application(scope, receive, send)


def connected(
    route: Application,
    settings: Settings = Settings(),
    observer: Observer = SilentObserver(),  # noqa: B008
) -> tuple[HttpConnection, Paper]:
    """Return a connection to a front with an application of its author's at /route."""
    engine = Engine(ScriptedBack(), settings=settings, observer=observer)
    front = HttpFront(engine, routes={"/route": Public(route)})
    return connected_to(front.serve, settings.limits, observer)


def connected_to(
    serve: Serve,
    limits: Limits = Limits(),
    observer: Observer = SilentObserver(),  # noqa: B008
) -> tuple[HttpConnection, Paper]:
    """Return a connection whose requests this function serves."""
    protocol = HttpConnection(Members(serve, Deadlines(limits, 30.0), observer=observer))
    paper = Paper()
    protocol.connection_made(paper)
    return protocol, paper


def post(path: bytes, body: bytes = b"", more: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%b\r\n%b" % (
        path,
        len(body),
        more,
        body,
    )


def reading(*, bodies: list[bytes], scopes: list[Scope] | None = None) -> Application:
    """Return an application that reads a body and keeps it."""

    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        if scopes is not None:
            scopes.append(scope)
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    return read


@pytest.mark.parametrize("pause", [True, False])
@pytest.mark.parametrize("size", [1, 7, 1_000])
@virtual_test
async def test_a_body_in_any_number_of_parts_arrives_whole(size: int, *, pause: bool) -> None:
    bodies: list[bytes] = []
    protocol, paper = connected(reading(bodies=bodies))
    body = bytes(range(256)) * 4
    data = post(b"/route", body)
    for start in range(0, len(data), size):
        protocol.data_received(data[start : start + size])
        if pause:
            await asyncio.sleep(0)
    await settled()
    assert bodies == [body]
    assert paper.statuses == [200]


def holding(release: asyncio.Event, told: list[str]) -> Serve:
    """Return a front that answers when it is released, and says when its client has disconnected."""

    async def hold(request: RawRequest, channel: Channel) -> None:
        response = WaitingResponse(request, channel)
        response.watch(lambda: told.append("gone"))
        await release.wait()
        await response.answer(json_answer(b"{}"))
        response.close()

    return hold


@virtual_test
async def test_a_request_receives_the_disconnect_also_while_others_wait_behind_it() -> None:
    told: list[str] = []
    release = asyncio.Event()
    protocol, paper = connected_to(holding(release, told))
    protocol.data_received(post(b"/route") * 3)
    await settled()
    assert not paper.paused, "the end of a connection that is not read is not noticed"
    protocol.connection_lost(None)
    await settled()
    assert told == ["gone"]
    release.set()
    await settled()
    assert (paper.written, protocol.members.tasks) == (b"", set())


@virtual_test
async def test_the_second_of_three_requests_receives_the_disconnect() -> None:
    told: list[str] = []
    release = asyncio.Event()
    protocol, paper = connected_to(holding(release, told))
    release.set()
    protocol.data_received(post(b"/route"))
    protocol.data_received(post(b"/route") * 2)
    asyncio.get_running_loop().call_soon(release.clear)
    while not paper.statuses:
        await asyncio.sleep(0)
    await settled()
    assert told == []
    protocol.connection_lost(None)
    await settled()
    assert told == ["gone"]


@virtual_test
async def test_no_more_is_read_from_a_client_of_which_many_requests_wait() -> None:
    release = asyncio.Event()
    protocol, paper = connected_to(holding(release, []))
    paused = []
    write = paper.write

    def noted(data: Any) -> None:
        paused.append(paper.paused)
        write(data)

    paper.write = noted  # type: ignore[method-assign]
    protocol.data_received(post(b"/route") * 20)
    await settled()
    release.set()
    while len(paused) < 20:
        await settled()
    # Code that waits for a client's end, as each of these does, does not read further for it.
    assert paused == [True] * 12 + [False] * 8
    assert paper.statuses == [200] * 20


@pytest.mark.parametrize(("requests", "paused"), [(8, False), (9, True)])
@virtual_test
async def test_a_connection_is_read_until_eight_requests_wait_behind_the_served_one(
    requests: int, *, paused: bool
) -> None:
    protocol, paper = connected_to(holding(asyncio.Event(), []))
    for _ in range(requests):
        assert not paper.paused
        protocol.data_received(post(b"/route"))
        await settled()
    assert paper.paused is paused
    protocol.connection_lost(None)


@virtual_test
async def test_a_request_that_the_front_does_not_answer_gets_500() -> None:
    protocol, paper = connected_to(lambda _request, _channel: None)
    protocol.data_received(post(b"/route"))
    await settled()
    assert paper.statuses == [500]


@virtual_test
async def test_a_body_is_not_late_while_its_request_waits_its_turn() -> None:
    release = asyncio.Event()
    protocol, paper = connected_to(holding(release, []))
    protocol.data_received(post(b"/route") + post(b"/route", b"body")[:-2])
    await settled()
    late = protocol.members.deadlines.limits.body_seconds + AWAKE + 2 * protocol.members.deadlines.interval
    protocol.members.deadlines.now += late
    protocol.sweep()
    assert not paper.is_closing()
    release.set()
    await settled()
    protocol.sweep()
    assert not paper.is_closing(), "its turn came just now"
    protocol.members.deadlines.now += late
    protocol.sweep()
    assert paper.is_closing()


@virtual_test
async def test_a_route_that_polls_for_the_end_of_a_connection_does_not_read_the_next_body() -> None:
    paused: list[bool] = []
    bodies: list[bytes] = []
    large = b"x" * 2 * HIGH_WATER
    read = reading(bodies=bodies)

    async def polling(scope: Scope, receive: Receive, send: Send) -> None:
        if paused:
            await read(scope, receive, send)
            return
        await receive()
        protocol.data_received(post(b"/route", large)[:-1])
        for _ in range(10):
            paused.append(paper.paused)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(receive(), 0.1)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    protocol, paper = connected(polling)
    protocol.data_received(post(b"/route"))
    await asyncio.sleep(2)
    assert paused == [True] * 10, "the body of a request that waits is bounded"
    assert not paper.paused
    protocol.data_received(b"x")
    await settled()
    assert (paper.statuses, bodies) == ([204, 200], [large])


@virtual_test
async def test_a_connection_that_was_reset_before_it_was_accepted_is_not_served_as_a_local_one() -> None:
    bodies: list[bytes] = []
    protocol, _ = connected(reading(bodies=bodies))
    reset = HttpConnection(protocol.members)
    paper = Paper(peer=None)
    reset.connection_made(paper)
    assert paper.is_closing()
    reset.data_received(post(b"/route", b"body"))
    await settled()
    assert (bodies, paper.written) == ([], b"")
    reset.connection_lost(None)
    assert set(protocol.members.connections) == {protocol}


@virtual_test
async def test_a_client_has_a_moment_to_read_the_refusal_of_its_body() -> None:
    protocol, paper = connected(reading(bodies=[]))
    protocol.data_received(
        b"POST /route HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx"
    )
    await settled()
    protocol.data_received(b"no chunk")
    await settled()
    assert paper.statuses == [400]
    assert not paper.is_closing(), "a close with unread bytes would reset the connection"
    protocol.members.deadlines.now += 2 * protocol.members.deadlines.interval
    protocol.sweep()
    assert paper.is_closing()


@pytest.mark.parametrize("lengths", [[b"1", b"1"], [b"+1"], [b"1_0"], [b""], [b"-1"]])
@virtual_test
async def test_a_route_cannot_send_a_length_that_clients_could_read_differently(lengths: list[bytes]) -> None:
    async def wrong(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", length) for length in lengths]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x"})

    protocol, paper = connected(wrong)
    protocol.data_received(post(b"/route"))
    await settled()
    assert paper.is_closing() or paper.statuses == [500]
    assert b" 200 " not in paper.written


OFFERS: Final = [
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
]


@pytest.mark.parametrize("size", [1, 100, 10_000])
@pytest.mark.parametrize("offer", OFFERS)
@virtual_test
async def test_a_request_that_offers_another_protocol_is_answered_in_this_one(
    offer: bytes, size: int
) -> None:
    bodies: list[bytes] = []
    protocol, paper = connected(reading(bodies=bodies))
    data = post(b"/route", b"first", offer) + post(b"/route", b"second", offer) + post(b"/route", b"third")
    for start in range(0, len(data), size):
        protocol.data_received(data[start : start + size])
        await asyncio.sleep(0)
    await settled()
    assert bodies == [b"first", b"second", b"third"]
    assert paper.statuses == [200] * 3
    assert not paper.is_closing()


@virtual_test
async def test_a_pipelined_request_with_an_offer_does_not_wake_the_one_before_it() -> None:
    messages: list[str] = []

    async def listening(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["body"] == b"one"
        messages.append((await receive())["type"])

    protocol, _ = connected(listening)
    protocol.data_received(post(b"/route", b"one"))
    await settled()
    protocol.data_received(post(b"/route", b"two", OFFERS[0]))
    await settled()
    assert messages == []
    protocol.connection_lost(None)
    await settled()
    assert messages == ["http.disconnect"]


@pytest.mark.parametrize("target", [b"/route", b"localhost:80"])
@pytest.mark.parametrize("offer", [b"", *OFFERS])
@virtual_test
async def test_a_tunnel_is_refused(target: bytes, offer: bytes) -> None:
    protocol, paper = connected(reading(bodies=[]))
    protocol.data_received(b"CONNECT %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (target, offer))
    await settled()
    assert paper.statuses == [400]


@virtual_test
async def test_fields_after_a_body_are_no_headers() -> None:
    scopes: list[Scope] = []
    bodies: list[bytes] = []
    protocol, _ = connected(reading(bodies=bodies, scopes=scopes))
    head = b"POST /route HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    protocol.data_received(head + b"4\r\nbody\r\n0\r\nAuthorization: Bearer x\r\nX-User: y\r\n\r\n")
    await settled()
    assert bodies == [b"body"]
    assert scopes[0]["headers"] == [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]
    protocol.data_received(post(b"/route", more=b"X-User: z\r\n"))
    await settled()
    assert (b"x-user", b"z") in scopes[1]["headers"]


@virtual_test
async def test_requests_sent_before_the_answer_are_answered_one_after_another() -> None:
    bodies: list[bytes] = []
    protocol, paper = connected(reading(bodies=bodies))
    protocol.data_received(b"".join(post(b"/route", b"%d" % number) for number in range(5)))
    await settled()
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert paper.statuses == [200] * 5
    assert not paper.paused


@virtual_test
async def test_a_target_is_unquoted_and_its_query_kept_apart_also_when_it_is_long() -> None:
    scopes: list[Scope] = []
    front = HttpFront(Engine(ScriptedBack()), routes={"/a route": Public(reading(bodies=[], scopes=scopes))})
    protocol, _ = connected_to(front.serve)
    long: Final = b"x" * 1_000
    for query in (b"a=%20b", long):
        protocol.data_received(post(b"/a%20route?" + query))
        await settled()
    assert [(scope["path"], scope["raw_path"]) for scope in scopes] == [("/a route", b"/a%20route")] * 2
    assert [scope["query_string"] for scope in scopes] == [b"a=%20b", long]


@pytest.mark.parametrize("path", [b"/mcp", b"/healthz", b"/nowhere"])
@virtual_test
async def test_a_head_request_gets_no_body(path: bytes) -> None:
    protocol, paper = connected(reading(bodies=[]))
    protocol.data_received(b"HEAD %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
    await settled()
    head, _, body = paper.written.partition(b"\r\n\r\n")
    assert body == b""
    assert b"content-length: 0" not in head


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
@virtual_test
async def test_an_answer_is_taken_unless_the_connection_was_closed_before_it(
    more: bytes, *, closed: bool
) -> None:
    taken: list[bool] = []

    async def answer(request: RawRequest, channel: Channel) -> None:
        if closed:
            paper.close()
        taken.append(await WaitingResponse(request, channel).answer(json_answer(b"{}")))

    protocol, paper = connected_to(answer)
    protocol.data_received(post(b"/route", more=more))
    await settled()
    assert taken == [not closed]
    assert paper.is_closing() is (closed or more != b"")


@virtual_test
async def test_a_target_longer_than_can_be_read_is_refused_with_a_status() -> None:
    protocol, paper = connected(reading(bodies=[]), Settings(limits=Limits(headers=100_000)))
    protocol.data_received(post(b"/" + b"x" * 70_000))
    assert paper.statuses == [400]


@virtual_test
async def test_a_client_that_waits_for_a_go_ahead_gets_it_before_its_body_is_read() -> None:
    bodies: list[bytes] = []
    protocol, paper = connected(reading(bodies=bodies))
    head = post(b"/route", b"later", b"Expect: 100-continue\r\n")[: -len(b"later")]
    protocol.data_received(head)
    await settled()
    assert paper.statuses == [100]
    protocol.data_received(b"later")
    await settled()
    assert (bodies, paper.statuses) == ([b"later"], [100, 200])


@pytest.mark.parametrize("missing", [0, 1])
@virtual_test
async def test_a_connection_is_closed_after_an_answer_to_a_client_that_may_still_send_its_body(
    missing: int,
) -> None:
    protocol, paper = connected(reading(bodies=[]))
    sent = post(b"/nowhere", b"body", b"Expect: 100-continue\r\n")
    protocol.data_received(sent[: len(sent) - 4 * missing])
    await settled()
    assert paper.statuses == [404]
    assert (b"connection: close" in paper.written) is bool(missing)


@virtual_test
async def test_a_connection_is_closed_once_it_has_idled_past_the_keep_alive_and_not_before() -> None:
    protocol, paper = connected(reading(bodies=[]))
    protocol.members.deadlines.now = 100.0
    protocol.data_received(post(b"/route"))
    await settled()
    protocol.members.deadlines.now += KEEP_ALIVE
    protocol.sweep()
    assert not paper.is_closing()
    protocol.data_received(post(b"/route"))
    await settled()
    protocol.members.deadlines.now += KEEP_ALIVE
    protocol.sweep()
    assert not paper.is_closing(), "its second request came just now"
    protocol.members.deadlines.now += 1
    protocol.sweep()
    assert paper.is_closing()


@virtual_test
async def test_a_connection_that_waits_for_its_answer_does_not_idle() -> None:
    release = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await release.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    protocol, paper = connected(slow)
    protocol.data_received(post(b"/route"))
    await settled()
    protocol.members.deadlines.now += 10 * KEEP_ALIVE
    protocol.sweep()
    assert not paper.is_closing()
    release.set()
    await settled()
    assert paper.statuses == [204]


@pytest.mark.parametrize("raises", [True, False])
@virtual_test
async def test_a_route_that_fails_or_does_not_answer_gets_500_and_is_logged(
    caplog: pytest.LogCaptureFixture, *, raises: bool
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        if raises:
            raise LookupError("nothing there")

    protocol, paper = connected(broken, observer=LogObserver())
    with caplog.at_level(logging.ERROR):
        protocol.data_received(post(b"/route"))
        await settled()
    assert paper.statuses == [500]
    [told] = caplog.records
    assert told.name == "limpet"
    assert ("nothing there" in caplog.text) is raises
    assert protocol.members.tasks == set()


@virtual_test
async def test_a_route_that_fails_behind_its_answer_leaves_the_connection_to_the_next_request() -> None:
    release = asyncio.Event()
    read = reading(bodies=[])

    async def trailing(scope: Scope, receive: Receive, send: Send) -> None:
        await read(scope, receive, send)
        await release.wait()
        raise LookupError("behind the answer")

    protocol, paper = connected(trailing)
    protocol.data_received(post(b"/route"))
    await settled()
    assert len(protocol.members.tasks) == 1
    release.set()
    await settled()
    protocol.data_received(post(b"/route"))
    await settled()
    assert (paper.statuses, protocol.members.tasks) == ([200, 200], set())
    assert not paper.is_closing()


@virtual_test
async def test_a_route_that_fails_within_its_answer_has_the_connection_closed() -> None:
    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise LookupError("in the middle")

    protocol, paper = connected(cut)
    protocol.data_received(post(b"/route"))
    await settled()
    assert (paper.statuses, paper.is_closing()) == ([200], True)


@virtual_test
async def test_a_stream_that_was_dropped_for_its_reader_is_no_fault_of_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def dropped(request: RawRequest, channel: Channel) -> None:
        response = WaitingResponse(request, channel)
        await response._start_stream(b": open\n\n")
        response.abort()

    protocol, paper = connected_to(dropped)
    protocol.data_received(post(b"/route"))
    await settled()
    assert (paper.statuses, caplog.records) == ([200], [])


@pytest.mark.parametrize("watched", [True, False])
@virtual_test
async def test_a_request_that_was_answered_is_freed_without_the_collector(*, watched: bool) -> None:
    release = asyncio.Event()
    protocol, _ = connected_to(holding(release, [])) if watched else connected(reading(bodies=[]))
    gc.collect()
    gc.disable()
    try:
        protocol.data_received(post(b"/route"))
        await settled()
        release.set()
        await settled()
        first = weakref.ref(protocol._newest)
        protocol.data_received(post(b"/route"))
        await settled()
        assert first() is None
    finally:
        gc.enable()


def parsers() -> int:
    return sum(type(found) is RequestParser for found in gc.get_objects())


@pytest.mark.parametrize("requests", [0, 1, 3])
@virtual_test
async def test_a_lost_connection_does_not_wait_for_the_garbage_collector(requests: int) -> None:
    """It is lost while so many requests are served or wait."""
    release = asyncio.Event()
    gc.collect()
    before = parsers()
    protocol, paper = connected_to(holding(release, []))
    gc.disable()
    try:
        release.set()
        protocol.data_received(post(b"/route"))
        await settled()
        release.clear()
        for _ in range(requests):
            protocol.data_received(post(b"/route"))
        await settled()
        lost = weakref.ref(protocol)
        protocol.connection_lost(None)
        release.set()
        await settled()
        del protocol, paper
        assert lost() is None
        assert parsers() <= before
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("peer", "address", "client", "server"),
    [
        (("10.0.0.1", 5), ("10.0.0.2", 80), ("10.0.0.1", 5), ("10.0.0.2", 80)),
        (("fe80::1", 5, 0, 2), ("::", 80, 0, 0), ("fe80::1", 5), ("::", 80)),
        ("", "/run/limpet.sock", None, ("/run/limpet.sock", None)),
        (("10.0.0.1", 5), None, ("10.0.0.1", 5), None),
    ],
)
@virtual_test
async def test_a_route_gets_the_addresses_of_the_connection(
    peer: object, address: object, client: object, server: object
) -> None:
    scopes: list[Scope] = []
    beside, _ = connected(reading(bodies=[], scopes=scopes))
    protocol = HttpConnection(beside.members)
    protocol.connection_made(Paper(peer, address))
    protocol.data_received(post(b"/route"))
    await settled()
    assert (scopes[0]["client"], scopes[0]["server"]) == (client, server)


@virtual_test
async def test_the_time_of_a_head_begins_with_its_connection() -> None:
    beside, _ = connected(reading(bodies=[]))
    deadlines = beside.members.deadlines
    deadlines.now = 1_000.0
    protocol, paper = HttpConnection(beside.members), Paper()
    protocol.connection_made(paper)
    deadlines.now += deadlines.limits.header_seconds
    protocol.sweep()
    assert paper.statuses == []
    deadlines.now += 0.1
    protocol.sweep()
    assert paper.statuses == [408]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [(b"", "slow"), (b"X", "malformed"), (post(b"/", more=b"X: %b\r\n" % (b"y" * 20_000)), "too_large")],
)
@virtual_test
async def test_a_refused_connection_is_reported_with_its_reason(sent: bytes, reason: str) -> None:
    refused: list[tuple[str, str | None]] = []
    deadlines = Deadlines(Limits(connections=1), 30.0)
    members = Members(holding(asyncio.Event(), []), deadlines, refused=lambda *why: refused.append(why))
    first, second = HttpConnection(members), HttpConnection(members)
    for protocol in (first, second):
        protocol.connection_made(Paper(("10.0.0.1", 5)))
    first.data_received(sent)
    deadlines.now += 20
    first.sweep()
    assert refused == [("connections", "10.0.0.1"), (reason, "10.0.0.1")]


@pytest.mark.parametrize("form", ["json", "event", "route"])
@virtual_test
async def test_every_answer_carries_the_date(form: str) -> None:
    def at_once(_request: RawRequest, channel: Channel) -> None:
        assert channel.answer_ok(b"{}", is_event=form == "event")

    protocol, paper = connected(reading(bodies=[])) if form == "route" else connected_to(at_once)
    protocol.members.set_date(0.0)
    protocol.data_received(post(b"/route"))
    await settled()
    assert paper.statuses == [200]
    assert b"\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n" in paper.written


@given(st.integers(0, 4_102_444_800))
def test_a_date_is_written_as_the_standard_library_writes_it(wall: int) -> None:
    assert date_of(wall + 0.5) == formatdate(wall, usegmt=True)


@virtual_test
async def test_connections_that_are_refused_take_no_place_of_others_and_only_some_of_them_get_an_answer() -> (
    None
):
    members = Members(holding(asyncio.Event(), []), Deadlines(Limits(connections=2), 30.0))
    protocols: list[HttpConnection] = []

    def connect() -> Paper:
        paper = Paper(("10.0.0.2", 5))
        protocols.append(HttpConnection(members))
        protocols[-1].connection_made(paper)
        return paper

    papers = [connect() for _ in range(2 + REFUSED + 1)]
    assert [paper.statuses for paper in papers] == [[]] * 2 + [[503]] * (REFUSED + 1)
    assert [paper.is_closing() for paper in papers] == [False] * (2 + REFUSED) + [True]
    protocols.pop(0).connection_lost(None)
    assert connect().statuses == []
    assert connect().statuses == [503]
    for protocol in protocols:
        protocol.connection_lost(None)
    assert not members.connections
    assert not members._refused


class Encrypted(Paper):
    """A transport of TLS: it counts no bytes that it has encrypted, and its socket reports those that were taken."""

    def __init__(self) -> None:
        super().__init__(sslcontext=True, socket=self)
        self.taken = 0
        self.unsent = 0

    def getsockopt(self, _level: int, _option: int, size: int) -> bytes:
        """Return the bytes that were taken, and those that were not, in the form of `TCP_INFO`."""
        info = bytearray(size)
        info[120:128], info[144:148] = (
            self.taken.to_bytes(8, sys.byteorder),
            self.unsent.to_bytes(4, sys.byteorder),
        )
        return bytes(info)


@pytest.mark.parametrize("closes", [True, False])
@virtual_test
async def test_a_client_with_tls_is_dropped_when_it_takes_no_bytes_and_not_while_it_is_slow(
    *, closes: bool
) -> None:
    protocol, paper = HttpConnection(connected(reading(bodies=[]))[0].members), Encrypted()
    protocol.connection_made(paper)
    aborted: list[float] = []
    deadlines = protocol.members.deadlines
    paper.abort = lambda: aborted.append(deadlines.now)  # type: ignore[method-assign]
    protocol.data_received(post(b"/route", more=b"Connection: close\r\n" if closes else b""))
    await settled()
    paper.unsent = 100
    while paper.taken < 60:
        protocol.sweep()
        deadlines.now += 1
        paper.taken += 1
    protocol.sweep()
    assert (aborted, paper.is_closing()) == ([], closes)
    deadlines.now += 32
    protocol.sweep()
    assert aborted == [92]


@virtual_test
async def test_a_client_with_tls_that_has_taken_everything_is_not_dropped() -> None:
    protocol, paper = HttpConnection(connected(reading(bodies=[]))[0].members), Encrypted()
    protocol.connection_made(paper)
    protocol.data_received(post(b"/route"))
    await settled()
    for _ in range(KEEP_ALIVE):
        protocol.sweep()
        protocol.members.deadlines.now += 1
    assert not paper.is_closing()
