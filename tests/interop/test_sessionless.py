"""Real clients do without a session (2026-07-28), over HTTP and over standard input and output."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.interop.checks import ModernConversation
from tests.interop.peers import MODERN_PEERS, Run, over_http, over_stdio, serving
from tests.interop.raw import VERSION, post


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
    def test_every_http_request_stands_alone(self, run: Run) -> None:
        assert {request.method for request in run.requests} <= {"POST"}
        assert not [request for request in run.requests if "mcp-session-id" in request.headers]
        assert {request.headers["mcp-protocol-version"] for request in run.requests} <= {VERSION}
        methods = Counter(request.rpc["method"] for request in run.requests)
        assert methods["initialize"] == 0
        # Over standard input nobody listens in.
        assert methods["server/discover"] == bool(run.requests)


def test_fifty_clients_that_all_use_the_same_id_get_each_its_own_answer(tmp_path: Path) -> None:
    numbers = range(50)
    with serving(tmp_path, {}) as port, ThreadPoolExecutor(len(numbers)) as threads:
        answers = list(threads.map(lambda number: _called(port, number), numbers))
    assert [answer["id"] for answer in answers] == [1] * len(numbers)
    texts = [answer["result"]["content"][0]["text"] for answer in answers]
    assert texts == [f"call {number}" for number in numbers]


def _called(port: int, number: int) -> dict[str, Any]:
    arguments = {"seconds": 0.5, "text": f"call {number}"}
    with post(port, "tools/call", {"name": "slow", "arguments": arguments}, f"client {number}") as response:
        # A call that takes longer than `stream_after` is answered by a stream; its answer is the last event.
        [event] = [line for line in response.read().splitlines() if line.startswith(b"data: ")]
    answer: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return answer
