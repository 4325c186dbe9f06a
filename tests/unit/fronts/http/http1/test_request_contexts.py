"""Requests of one connection share no context variables: a balancer sends requests of several users on one connection."""

import asyncio
import socket
from contextvars import ContextVar
from typing import Final

import pytest

from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.http1.channel import HIGH_WATER
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from limpet.fronts.http.read.request import Receive, Scope, Send
from limpet.testing.back import ScriptedBack
from tests.messages import metadata, modern_headers, request
from tests.support import async_test
from tests.unit.fronts.http.http1.test_plain_calls import post

USER: Final[ContextVar[str]] = ContextVar("user", default="none")


class SignIn:
    """A route that sets a context variable, then reads its body."""

    def demand(self, _method: str) -> None:
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"] == "/route"
        USER.set("alice")
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


class Line:
    """A connection of real sockets; each call of its tool notes the user that it sees, and sets another one."""

    def __init__(self) -> None:
        back = ScriptedBack({"tools/call": self._who})
        self.engine = Engine(back)
        self.seen: list[str] = []
        self._front = HttpFront(self.engine, routes={"/route": SignIn()})

    async def open(self) -> "Line":
        await self.engine.ensure_started()
        members = Members(self._front.serve, Deadlines(self.engine.settings.limits, 30.0))
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: HttpConnection(members), ours)
        self._reader, self._writer = await asyncio.open_connection(sock=theirs)
        return self

    async def _who(self, _exchange: Exchange) -> object:
        self.seen.append(USER.get())
        USER.set("bob")
        return {}

    async def send(self, *requests: bytes) -> None:
        """Send requests in one write, and read their answers."""
        self._writer.write(b"".join(requests))
        for _ in requests:
            head = await self._reader.readuntil(b"\r\n\r\n")
            _, _, length = head.partition(b"content-length: ")
            await self._reader.readexactly(int(length.split(b"\r\n")[0]))

    async def close(self) -> None:
        self._writer.close()
        await self.engine.aclose()


def sign_in(size: int) -> bytes:
    return b"POST /route HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (size, b"x" * size)


CALL: Final = post(
    request(1, "tools/call", {"name": "who", "arguments": {}, "_meta": metadata()}),
    modern_headers("tools/call", {"name": "who"}),
)


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param([[CALL], [CALL]], id="one after another"),
        pytest.param([[CALL, CALL]], id="in one read"),
        pytest.param([[sign_in(2), CALL], [CALL]], id="behind a request that sets a variable"),
        # The connection is not read for a while, and the request lets it be read again.
        pytest.param([[sign_in(20 * HIGH_WATER)], [CALL], [CALL]], id="after a request with a long body"),
    ],
)
@async_test
async def test_a_call_sees_no_variable_of_an_earlier_request_of_its_connection(
    reads: list[list[bytes]],
) -> None:
    line = await Line().open()
    for requests in reads:
        await line.send(*requests)
    assert line.seen == ["none", "none"]
    await line.close()
