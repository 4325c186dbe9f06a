"""Real clients do without a session (2026-07-28), over HTTP and over standard input and output."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.http.client import http_test, sessionless, text
from tests.interop.checks import ModernConversation
from tests.interop.peers import MODERN_PEERS, Run, over_http, over_stdio, serving
from tests.messages import MODERN, Json


@pytest.fixture(
    scope="module",
    params=[(peer, talks) for talks in (over_http, over_stdio) for peer in MODERN_PEERS],
    ids=lambda param: f"{param[0]}-{param[1].__name__}",
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One conversation for each client on each transport, held once."""
    peer, talks = request.param
    directory: Path = tmp_path_factory.mktemp(str(peer))
    held: Run = talks(peer, directory)
    return held


class TestModern(ModernConversation):
    def test_no_http_request_uses_a_session(self, run: Run) -> None:
        assert {request.method for request in run.requests} <= {"POST"}
        assert not [request for request in run.requests if "mcp-session-id" in request.headers]
        assert {request.headers["mcp-protocol-version"] for request in run.requests} <= {MODERN}
        methods = Counter(request.rpc["method"] for request in run.requests)
        assert methods["initialize"] == 0
        # Over standard input no proxy records requests.
        assert methods["server/discover"] == bool(run.requests)


@http_test
async def test_fifty_clients_that_all_use_the_same_id_get_each_its_own_answer(tmp_path: Path) -> None:
    async def called(number: int) -> Json:
        params = {"name": "slow", "arguments": {"seconds": 0.5, "text": f"call {number}"}}
        response = await sessionless(port, "tools/call", params, client=f"client {number}")
        # A call that takes longer than `stream_after` is answered by a stream with one event.
        [answer] = [message async for message in response.messages()]
        return answer

    numbers = range(50)
    with serving(tmp_path, {}) as port:
        answers = await asyncio.gather(*map(called, numbers))
    assert [answer["id"] for answer in answers] == [1] * len(numbers)
    assert [text(answer) for answer in answers] == [f"call {number}" for number in numbers]
