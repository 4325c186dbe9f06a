"""The text of failures for the client, alone and out of task groups, and for the log."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from limpet import Context, Depends, McpError, Server, Settings, ToolError
from limpet.errors import Fenced, InvalidParams, SessionGone, StoreUnavailable
from limpet.ops.log import LogObserver
from limpet.protocol.types import Result
from limpet.server.authoring.middleware import CallNext, MiddlewareRequest
from limpet.testing import NotingObserver
from tests.support import async_test, virtual_test
from tests.unit.server.peer import Peer, connected
from tests.unit.server.sessionless_client import SessionlessClient
from tests.unit.server.task_client import tasks_of


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


RAISED: Final[dict[str, tuple[Exception, str]]] = {
    "value": (ValueError("city not found"), "ValueError: city not found"),
    "key": (KeyError("Oslo"), "KeyError: 'Oslo'"),
    "empty": (RuntimeError(), "RuntimeError"),
    "mute": (Mute(), "Mute"),
    "surrogate": (OSError("a\ud800b"), "OSError: a\\ud800b"),
    "long": (ValueError("x" * 100_000), f"ValueError: {'x' * 4_084}…"),
    "group": (
        ExceptionGroup("two", [ValueError("a"), ExceptionGroup("one", [ToolError("b"), ValueError("a")])]),
        "ValueError: a\nb",
    ),
    "mixed": (
        ExceptionGroup("two", [ValueError("a"), InvalidParams("b")]),
        "ValueError: a\nInvalidParams: b",
    ),
}
"""Exceptions, and the text that a client receives for each."""


async def untidy() -> AsyncIterator[str]:
    yield "x"
    raise ValueError("cleaning up")


def failing(**options: Any) -> tuple[Server, NotingObserver]:
    """Make a server whose functions raise the exception of `RAISED` that their argument names."""
    noted = NotingObserver()
    server = Server("s", **{"observer": noted, **options})

    def fail(what: str) -> str:
        raise RAISED[what][0].with_traceback(None)  # without the calls of earlier tests

    @server.tool
    async def tool(what: str) -> str:
        return fail(what)

    @server.tool
    def plain(what: str) -> str:
        return fail(what)

    @server.tool(task="optional")
    async def job(what: str) -> str:
        return fail(what)

    @server.tool
    async def depends(given: str = Depends(untidy)) -> str:
        return given

    @server.tool
    async def unsendable() -> object:
        return object()

    @server.prompt
    async def prompt(what: str) -> str:
        return fail(what)

    @server.resource("r://{what}")
    async def resource(what: str) -> str:
        return fail(what)

    @server.completion(prompt="prompt")
    async def completion(value: str) -> list[str]:
        return [fail(value)]

    return server, noted


OTHERS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "prompts/get": lambda what: {"name": "prompt", "arguments": {"what": what}},
    "resources/read": lambda what: {"uri": f"r://{what}"},
    "completion/complete": lambda what: {
        "ref": {"type": "ref/prompt", "name": "prompt"},
        "argument": {"name": "what", "value": what},
    },
}
"""Requests whose result cannot say that it failed."""


@asynccontextmanager
async def both(server: Server) -> AsyncIterator[tuple[Peer | SessionlessClient, ...]]:
    """Give a client of each era."""
    async with connected(server) as peer:
        yield peer, SessionlessClient(server)


@pytest.mark.parametrize("what", RAISED)
@async_test
async def test_an_exception_in_a_tool_is_a_failed_result_with_its_text(what: str) -> None:
    server, noted = failing()
    async with both(server) as clients:
        for client in clients:
            for tool in ("tool", "plain"):
                assert await client.failure(tool, what=what) == RAISED[what][1]
    names = [(facts["tool"], facts["client"], facts["method"]) for facts in noted.named("handler.failed")]
    assert names == [(tool, who, "tools/call") for who in ("peer", "guest") for tool in ("tool", "plain")]
    assert all(facts["error"] is RAISED[what][0] for facts in noted.named("handler.failed"))


@async_test
async def test_an_error_in_a_dependency_or_a_return_value_is_a_failed_result_too() -> None:
    server, noted = failing()
    async with both(server) as clients:
        for client in clients:
            assert await client.failure("depends") == "ValueError: cleaning up"
            assert "TypeError" in await client.failure("unsendable")
    assert len(noted.named("handler.failed")) == 4


@virtual_test
async def test_a_task_that_raises_completes_with_a_failed_result() -> None:
    server, _ = failing()
    async with tasks_of(server) as client:
        task = await client.done(await client.create("job", what="value"))
        assert task["status"] == "completed"
        assert task["result"]["isError"] is True
        assert task["result"]["content"][0]["text"] == "ValueError: city not found"


@pytest.mark.parametrize("method", OTHERS)
@async_test
async def test_an_exception_outside_of_tools_is_an_internal_error_with_its_text(method: str) -> None:
    server, noted = failing()
    async with both(server) as clients:
        for client in clients:
            with pytest.raises(McpError) as raised:
                await client.request(method, OTHERS[method]("value"))
            assert (raised.value.code, raised.value.message) == (-32603, "ValueError: city not found")
    assert len(noted.named("handler.failed")) == 2


@async_test
async def test_masked_errors_are_a_correlation_id_that_the_log_has() -> None:
    for options in ({"mask_errors": True}, {"settings": Settings(mask_errors=True)}):
        server, noted = failing(**options)
        async with both(server) as clients:
            for client in clients:
                texts = [await client.failure("tool", what="group")]
                for method, params in OTHERS.items():
                    with pytest.raises(McpError) as raised:
                        await client.request(method, params("value"))
                    texts.append(raised.value.message)
                found = noted.named("handler.failed")[-4:]
                assert texts == [f"Internal error (correlation id {facts['correlation']})" for facts in found]


@async_test
async def test_a_client_visible_error_is_neither_masked_nor_logged() -> None:
    noted = NotingObserver()
    server = Server("s", observer=noted, mask_errors=True)

    @server.tool
    async def fails() -> str:
        raise ToolError("no coffee")

    @server.tool
    async def refuses() -> str:
        raise McpError(-32050, "not today", {"when": "tomorrow"})

    @server.tool
    async def refuses_together() -> str:
        raise ExceptionGroup("", [McpError(-32050, "not today", {"when": "tomorrow"})])

    @server.tool
    async def add(a: int) -> int:
        return a

    async with both(server) as clients:
        for client in clients:
            assert await client.failure("fails") == "no coffee"
            assert "a: missing" in await client.failure("add")
            for tool in ("refuses", "refuses_together"):
                with pytest.raises(McpError) as refused:
                    await client.call(tool)
                assert (refused.value.code, refused.value.data) == (-32050, {"when": "tomorrow"})
    assert noted.named("handler.failed") == []


@async_test
async def test_the_text_of_a_store_error_is_never_sent_to_a_client() -> None:
    server = Server("s")

    @server.tool
    async def lost() -> str:
        raise StoreUnavailable("redis://10.0.0.7 cannot be reached")

    async with both(server) as clients:
        for client in clients:
            assert (await client.failure("lost")).startswith("Internal error (correlation id ")


@pytest.mark.parametrize(
    "ended", [Fenced("by another"), SessionGone("closed"), ExceptionGroup("", [Fenced("x")])]
)
@async_test
async def test_an_exchange_that_another_replica_ended_has_no_result(ended: Exception) -> None:
    server = Server("s")

    @server.tool
    async def ends() -> str:
        raise ended

    async with both(server) as clients:
        for client in clients:
            with pytest.raises(McpError):
                await client.call("ends")


@async_test
async def test_a_middleware_that_raises_fails_the_request() -> None:
    server, noted = failing()

    @server.middleware
    async def guard(request: MiddlewareRequest, call_next: CallNext) -> Result:
        if request.params.get("name") == "tool":
            raise PermissionError("not yours")
        if request.method == "tools/list":
            raise LookupError("nothing here")
        return await call_next(request)

    async with both(server) as clients:
        for client in clients:
            assert await client.failure("tool", what="value") == "PermissionError: not yours"
            assert await client.failure("plain", what="value") == "ValueError: city not found"
            with pytest.raises(McpError, match="LookupError: nothing here"):
                await client.request("tools/list")
    assert len(noted.named("handler.failed")) == 6


@async_test
async def test_the_log_has_tool_client_correlation_id_and_traceback(caplog: pytest.LogCaptureFixture) -> None:
    server, _ = failing(mask_errors=True, observer=LogObserver())
    with caplog.at_level(logging.ERROR, "limpet"):
        async with connected(server) as peer:
            text = await peer.failure("tool", what="value")
    [line] = caplog.records
    said = line.getMessage()
    assert all(fact in said for fact in ("handler.failed", "tool=tool", "client=peer", "method=tools/call"))
    assert f"correlation={text.split()[-1].rstrip(')')}" in said
    assert line.exc_text is not None
    assert "test_client_errors.py" in line.exc_text
    assert "ValueError: city not found" in line.exc_text


@async_test
async def test_asks_that_fail_together_in_a_task_group_are_a_failed_result_and_not_an_internal_error() -> (
    None
):
    server = Server("s")

    @server.tool
    async def parallel(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ctx.sample("?")) for _ in range(3)]
        return ",".join(task.result().text for task in asked)

    @server.prompt
    async def prompted(ctx: Context) -> str:
        return await parallel(ctx)

    async with connected(server) as peer:
        text = await peer.failure("parallel")
        assert text.count("did not declare the capability `sampling`") == 1
        with pytest.raises(McpError, match="did not declare the capability `sampling`"):
            await peer.request("prompts/get", {"name": "prompted"})
