"""Features of a connection for proxies: raw results, the origin of messages, progress, cancellation, ends, limits."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from limpet.errors import UNSUPPORTED_VERSION, ClientError, LineTooLong, NotSent, OutcomeUnknown
from limpet.ports import Ports, SilentObserver, SystemRandom
from limpet.testing.clock import VirtualClock
from limpet.upstream.connection import Callbacks, Connection, ConnectionOptions
from limpet.upstream.connectors import Connector
from limpet.upstream.duplex_link import DuplexLink
from limpet.upstream.link import EndReason, LinkEnd, Receiver
from limpet.upstream.negotiation import EraMemory
from limpet.upstream.pending import OutgoingRequest
from limpet.upstream.profile import ClientProfile
from limpet.wire.jsonrpc import Notification
from tests.support import until, virtual_test

Message = dict[str, Any]
Answer = Callable[["Server", Message], Awaitable[None]]


class Server:
    """A server of either era at the other end of a pipe. `on_call` answers `tools/call`."""

    def __init__(self, on_call: Answer, *, is_sessionless: bool = False) -> None:
        self.on_call = on_call
        self.is_sessionless = is_sessionless
        self.received: list[Message] = []
        self.exit_status: int | None = None
        self.last_words = "the end of its stderr:\nno disk"
        self.closed = False
        self._out: asyncio.Queue[bytes | LineTooLong] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, message: bytes) -> None:
        decoded = json.loads(message)
        self.received.append(decoded)
        task = asyncio.get_running_loop().create_task(self._take(decoded))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, message: Message) -> None:
        match message.get("method"):
            case "server/discover" if self.is_sessionless:
                self.result(message, {"supportedVersions": ["2026-07-28"], "capabilities": {}})
            case "initialize":
                self.result(message, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})
            case "tools/call":
                await self.on_call(self, message)
            case "ping":
                self.result(message, {})
            case _ if "id" in message and "method" in message:
                self.say({"id": message["id"], "error": {"code": -32601, "message": "no"}})
            case _:
                pass

    def result(self, message: Message, result: object) -> None:
        self.say({"id": message["id"], "result": result})

    def say(self, message: Message) -> None:
        self.say_text(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def say_text(self, text: bytes | LineTooLong) -> None:
        self._out.put_nowait(text)

    def exit(self, status: int | None) -> None:
        self.exit_status = status
        self._out.put_nowait(b"")

    async def read(self) -> bytes:
        text = await self._out.get()
        if isinstance(text, LineTooLong):
            raise text
        return text

    async def aclose(self) -> None:
        self.closed = True
        self._out.put_nowait(b"")


class User(Connector):
    """The user of a connection: it connects to a list of servers, one after the other, and writes down everything."""

    probe_seconds = 5.0
    answer_seconds = 10.0

    def __init__(self, *servers: Server) -> None:
        self.servers = list(servers)
        self.ends: list[LinkEnd] = []
        self.notifications: list[tuple[str, object]] = []
        self.origins: list[object] = []
        """The owners of the requests that the last request of the server can belong to."""

    async def connect(self, receiver: Receiver) -> DuplexLink:
        if not self.servers:
            raise NotSent("no server is left")
        return DuplexLink(self.servers.pop(0), receiver, SilentObserver())

    async def on_request(
        self, method: str, params: dict[str, Any], origins: Sequence[OutgoingRequest]
    ) -> msgspec.Raw:
        assert (method, params) == ("roots/list", {})
        self.origins = [request.owner for request in origins]
        return msgspec.Raw(b'{"roots": [ ]}')

    def on_notification(self, notification: Notification, origin: OutgoingRequest | None) -> None:
        self.notifications.append((notification.method, origin))


@asynccontextmanager
async def connected(
    user: User, on_reconnected: Callable[[object], Awaitable[None]] | None = None, **options: Any
) -> AsyncIterator[Connection]:
    callbacks = Callbacks(
        on_request=user.on_request,
        on_notification=user.on_notification,
        on_end=user.ends.append,
        on_reconnected=on_reconnected,
    )
    connection = Connection(
        user,
        ClientProfile({"name": "proxy", "version": "1"}, {"roots": {}}),
        callbacks,
        options=ConnectionOptions(**options),
        eras=EraMemory(),
        ports=Ports(VirtualClock(), SystemRandom(), SilentObserver()),
    )
    await connection.open()
    try:
        yield connection
    finally:
        await connection.aclose()


async def echo(server: Server, message: Message) -> None:
    server.result(message, {"echo": message["params"]["arguments"]})


async def never(server: Server, message: Message) -> None:
    """Leave a call unanswered."""


@pytest.mark.parametrize("is_sessionless", [False, True])
@virtual_test
async def test_params_and_results_travel_as_json_text(is_sessionless: bool) -> None:
    user = User(Server(echo, is_sessionless=is_sessionless))
    async with connected(user, raw_results=True) as connection:
        assert connection.agreed is not None
        assert connection.agreed.is_sessionless is is_sessionless
        arguments = msgspec.Raw(b'{"big":123456789012345678901234567890,"n":1.0}')
        result = await connection.request("tools/call", {"name": "x", "arguments": arguments})
        assert isinstance(result, msgspec.Raw)
        assert b'"n": 1.0' in bytes(result)


@virtual_test
async def test_the_user_chooses_the_era() -> None:
    user = User(Server(echo, is_sessionless=True))
    async with connected(user, version="2025-11-25") as connection:
        assert connection.agreed is not None
        assert connection.agreed.version == "2025-11-25"


@virtual_test
async def test_a_result_that_asks_for_input_is_returned_and_the_caller_sends_the_retry() -> None:
    async def ask_once(server: Server, message: Message) -> None:
        if "inputResponses" in message["params"]:
            assert message["params"]["requestState"] == "s"
            server.result(message, {"resultType": "complete"})
        else:
            server.result(message, {"resultType": "input_required", "requestState": "s", "inputRequests": {}})

    async with connected(User(Server(ask_once, is_sessionless=True))) as connection:
        first = await connection.request("tools/call", {"name": "x"})
        assert first["resultType"] == "input_required"
        retry = {"name": "x", "requestState": first["requestState"], "inputResponses": {}}
        assert await connection.request("tools/call", retry) == {"resultType": "complete"}


@virtual_test
async def test_progress_reaches_the_callback_of_its_request_under_a_token_of_the_connection() -> None:
    async def report(server: Server, message: Message) -> None:
        token = message["params"]["_meta"]["progressToken"]
        assert token != "mine"
        for progress in (1, 2):
            params = {"progressToken": token, "progress": progress, "message": message["params"]["name"]}
            server.say({"method": "notifications/progress", "params": params})
        server.result(message, {})

    async with connected(User(Server(report))) as connection:
        seen: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
        await asyncio.gather(
            *(
                connection.request(
                    "tools/call",
                    {"name": name, "_meta": {"progressToken": "mine"}},
                    on_progress=seen[name].append,
                )
                for name in seen
            )
        )
        for name, reports in seen.items():
            assert [(one["progress"], one["message"]) for one in reports] == [(1, name), (2, name)]


@virtual_test
async def test_a_request_of_the_server_gets_its_answer_as_json_text_and_has_no_origin_on_a_pipe() -> None:
    server = Server(echo)
    user = User(server)
    async with connected(user):
        server.say({"id": "q", "method": "roots/list"})
        server.say({"method": "notifications/tools/list_changed"})
        await asyncio.sleep(1)
        assert server.received[-1] == {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}
        assert user.notifications == [("notifications/tools/list_changed", None)]


@virtual_test
async def test_on_a_pipe_a_request_of_the_server_can_belong_to_each_request_without_a_response() -> None:
    async def both(server: Server, message: Message) -> None:
        if message["params"]["name"] == "third":
            # In one pass of the loop: the first call is answered, and its task has not run yet.
            server.result({"id": message["id"] - 2}, {})
            server.say({"id": "q", "method": "roots/list"})
            await asyncio.sleep(1)
            for number in (1, 0):
                server.result({"id": message["id"] - number}, {})

    user = User(Server(both))
    async with connected(user) as connection:
        names = ("first", "second", "third")
        await asyncio.gather(
            *(connection.request("tools/call", {"name": name}, owner=name) for name in names)
        )
        assert user.origins == ["second", "third"]


INVALID = [
    (b'{"id":"q","method":"roots/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":"q","method":5}', -32600),
    (b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":[1]}', -32600),
    (b'{"jsonrpc":"2.0","id":"q","params":{}}', -32600),
    (b'{"jsonrpc":"2.0","id":"q","method":"roots/list","method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"n":NaN}}', -32700),
    (b'[{"jsonrpc":"2.0","id":"q","method":"roots/list","params":[1]}]', -32600),
]


@virtual_test
async def test_an_invalid_request_of_the_server_is_refused_with_its_id() -> None:
    server = Server(echo)
    async with connected(User(server)) as connection:
        for text, code in INVALID:
            server.say_text(text)
            await asyncio.sleep(1)
            refused = server.received[-1]
            assert (refused.get("id"), refused.get("error", {}).get("code")) == ("q", code), text
            server.received.clear()
        await check_garbage_is_ignored(server, connection)


@virtual_test
async def test_a_client_without_a_session_sends_no_response() -> None:
    """2026-07-28 forbids requests of the server, and responses of the client."""
    server = Server(echo, is_sessionless=True)
    user = User(server)
    async with connected(user) as connection:
        server.received.clear()
        server.say({"id": "q", "method": "roots/list"})
        server.say({"id": "q", "method": "ping"})
        for text, _ in INVALID:
            server.say_text(text)
        await asyncio.sleep(1)
        assert (server.received, user.origins) == ([], [])
        await check_garbage_is_ignored(server, connection)


async def check_garbage_is_ignored(server: Server, connection: Connection) -> None:
    for text in (b"listening on port 8000", b'{"method":5}', b'{"id":9}', b"[{}, 1, []]", b"[]"):
        server.say_text(text)
    await asyncio.sleep(1)
    assert server.received == []
    assert await connection.request("tools/call", {"name": "x", "arguments": 1}) == {"echo": 1}


@virtual_test
async def test_a_request_of_the_server_over_the_limit_is_refused_with_its_id() -> None:
    server = Server(echo)
    async with connected(User(server)):
        server.say_text(LineTooLong(9, b'{"jsonrpc":"2.0","id":"q","method":"roots/list",', b"}"))
        await asyncio.sleep(1)
        assert (server.received[-1]["id"], server.received[-1]["error"]["code"]) == ("q", -32600)


@virtual_test
async def test_an_invalid_message_in_a_batch_costs_no_other_message_of_it() -> None:
    async def answer_in_batch(server: Server, message: Message) -> None:
        response = {"jsonrpc": "2.0", "id": message["id"], "result": "good"}
        server.say_text(json.dumps([response, {"id": "q", "method": 5}]).encode())

    server = Server(answer_in_batch)
    async with connected(User(server)) as connection:
        assert await connection.request("tools/call", {"name": "x"}) == "good"
        await asyncio.sleep(1)
        assert server.received[-1]["id"] == "q"


@virtual_test
async def test_an_invalid_request_with_the_id_of_a_running_one_does_not_answer_it() -> None:
    go = asyncio.Event()

    class SlowUser(User):
        async def on_request(self, *_asked: Any) -> msgspec.Raw:
            await go.wait()
            return msgspec.Raw(b"{}")

    server = Server(echo)
    user = SlowUser(server)
    async with connected(user):
        server.say({"id": "q", "method": "roots/list"})
        server.say({"id": "q", "method": 5})
        await asyncio.sleep(1)
        go.set()
        await asyncio.sleep(1)
        assert [one for one in server.received if one.get("id") == "q"] == [
            {"jsonrpc": "2.0", "id": "q", "result": {}}
        ]


@virtual_test
async def test_cancelling_a_request_cancels_it_alone_with_the_reason() -> None:
    async def slow(server: Server, message: Message) -> None:
        await asyncio.sleep(5)
        server.result(message, {})

    server = Server(slow)
    async with connected(User(server)) as connection:
        first = asyncio.create_task(connection.request("tools/call", {"name": "first"}))
        second = asyncio.create_task(connection.request("tools/call", {"name": "second"}))
        await asyncio.sleep(1)
        first.cancel("the client has disconnected")
        assert await second == {}
        assert first.cancelled()
        cancelled = [one for one in server.received if one.get("method") == "notifications/cancelled"]
        [call] = [one for one in server.received if one.get("params", {}).get("name") == "first"]
        assert [one["params"] for one in cancelled] == [
            {"requestId": call["id"], "reason": "the client has disconnected"}
        ]


# Ends


@virtual_test
async def test_a_request_that_was_answered_is_not_cancelled() -> None:
    server = Server(never)
    async with connected(User(server)) as connection:
        call = asyncio.create_task(connection.request("tools/call", {"name": "x"}))
        await asyncio.sleep(1)
        link, number = await connection.link(), server.received[-1]["id"]
        # The response is there, and the task of the call has not run yet.
        link.receiver.take(link, json.dumps({"jsonrpc": "2.0", "id": number, "result": {}}).encode())
        call.cancel()
        await asyncio.wait({call})
        await asyncio.sleep(1)
        assert "notifications/cancelled" not in [one.get("method") for one in server.received]


@virtual_test
async def test_the_exit_of_a_process_is_reported_once_with_status_and_stderr_and_the_next_one_is_used() -> (
    None
):
    server = Server(never)
    user = User(server, Server(echo))
    async with connected(user) as connection:
        calls = [asyncio.create_task(connection.request("tools/call", {"name": "x"})) for _ in range(3)]
        await asyncio.sleep(1)
        server.exit(3)
        for call in calls:
            with pytest.raises(OutcomeUnknown, match="no disk"):
                await call
        assert [(end.reason, end.exit_status) for end in user.ends] == [(EndReason.PROCESS_EXITED, 3)]
        assert "no disk" in user.ends[0].message
        assert await connection.request("tools/call", {"arguments": 1}) == {"echo": 1}
    assert [end.reason for end in user.ends] == [EndReason.PROCESS_EXITED, EndReason.CLOSED]


@virtual_test
async def test_a_pipe_that_closes_while_its_process_runs_is_a_lost_connection() -> None:
    server = Server(echo)
    user = User(server)
    async with connected(user):
        server.exit(None)
        await asyncio.sleep(1)
        assert [end.reason for end in user.ends] == [EndReason.CONNECTION_LOST]
    assert len(user.ends) == 1


@virtual_test
async def test_without_reconnecting_every_later_request_is_refused_with_the_reason_of_the_end() -> None:
    server = Server(echo)
    user = User(server, Server(echo))
    async with connected(user, reconnect=False) as connection:
        server.exit(9)
        await asyncio.sleep(1)
        for _ in range(2):
            with pytest.raises(NotSent, match=r"(?s)process exited.*no disk"):
                await connection.request("tools/call", {"name": "x"})
        assert len(user.servers) == 1


@virtual_test
async def test_a_server_that_exits_during_the_negotiation_is_an_error_and_no_end() -> None:
    server = Server(echo)
    server.exit(1)
    user = User(server)
    with pytest.raises(NotSent, match="no disk"):
        async with connected(user, version="2025-11-25"):
            pass
    assert user.ends == []


@virtual_test
async def test_a_link_that_ends_while_the_user_restores_its_session_is_reported_too() -> None:
    first, second = Server(echo), Server(echo)
    user = User(first, second, Server(echo))
    restored: list[Server] = []

    async def restore(link: object) -> None:
        if not restored:
            restored.append(second)
            second.exit(2)
            await asyncio.sleep(1)

    async with connected(user, on_reconnected=restore) as connection:
        first.exit(1)
        await asyncio.sleep(1)
        assert await connection.request("tools/call", {"arguments": 1}) == {"echo": 1}
    assert [end.exit_status for end in user.ends] == [1, 2, None]


async def restarted(user: User, first: Server) -> None:
    """Let the first server exit, and wait until the connection has noticed it."""
    first.exit(1)
    await until(lambda: bool(user.ends))


@virtual_test
async def test_closing_while_the_next_link_opens_ends_the_requests_that_wait_for_it_with_an_error() -> None:
    first = Server(echo)

    class SlowUser(User):
        async def connect(self, receiver: Receiver) -> DuplexLink:
            if first.exit_status is not None:
                await asyncio.Event().wait()
            return await super().connect(receiver)

    user = SlowUser(first)
    async with connected(user) as connection:
        await restarted(user, first)
        waiting = asyncio.create_task(connection.request("tools/call", {"name": "x"}))
        impatient = asyncio.create_task(connection.request("tools/call", {"name": "x"}))
        await asyncio.sleep(1)
        impatient.cancel()
        await asyncio.sleep(1)
        assert not waiting.done()
    with pytest.raises(ClientError, match="the client is closed"):
        await waiting


@virtual_test
async def test_closing_while_the_settings_are_restored_closes_the_new_link() -> None:
    first, second = Server(echo), Server(echo)
    user = User(first, second)

    async def restore(_link: object) -> None:
        await asyncio.Event().wait()

    async with connected(user, on_reconnected=restore) as connection:
        await restarted(user, first)
        waiting = asyncio.create_task(connection.request("tools/call", {"name": "x"}))
        await asyncio.sleep(1)
        assert user.servers == []
    assert second.closed
    with pytest.raises(ClientError):
        await waiting


@virtual_test
async def test_a_server_that_does_not_answer_while_settings_are_restored_still_gets_calls() -> None:
    first, second = Server(echo), Server(echo)
    user = User(first, second)

    async def restore(_link: object) -> None:
        await asyncio.Event().wait()

    async with connected(user, on_reconnected=restore) as connection:
        await restarted(user, first)
        assert await connection.request("tools/call", {"arguments": 1}) == {"echo": 1}


@virtual_test
async def test_calls_that_a_replaced_server_refuses_at_once_share_one_new_link() -> None:
    async def refuse(server: Server, message: Message) -> None:
        await asyncio.sleep(1)
        server.say({"id": message["id"], "error": {"code": UNSUPPORTED_VERSION, "message": "no"}})

    user = User(Server(refuse), Server(echo), Server(echo))
    async with connected(user) as connection:
        calls = [connection.request("tools/call", {"arguments": number}) for number in range(3)]
        assert await asyncio.gather(*calls) == [{"echo": number} for number in range(3)]
        assert len(user.servers) == 1
