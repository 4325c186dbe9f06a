"""Real clients talk to a server process over HTTP, through a proxy that cuts three of their connections."""

from collections import Counter
from pathlib import Path

import pytest

from tests.interop.checks import Conversation, heard, told
from tests.interop.peers import PEERS, Peer, Run, over_http
from tests.interop.proxy import Request


@pytest.fixture(scope="module", params=PEERS, ids=str)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One conversation for each client, held once."""
    peer: Peer = request.param
    directory: Path = tmp_path_factory.mktemp(str(peer))
    return over_http(peer, directory)


class TestHttp(Conversation):
    def test_a_client_left_to_find_out_probes_first_and_then_shakes_hands(self, run: Run) -> None:
        methods = [request.rpc["method"] for request in run.requests if "method" in request.rpc]
        handshake = ["initialize", "notifications/initialized"]
        probe = ["server/discover"] if run.peer.mode == "fallback" else []
        assert methods[: len(probe) + 2] == probe + handshake

    def test_every_answer_to_an_ask_is_accepted_also_a_late_one(self, run: Run) -> None:
        answers = [request for request in run.requests if "result" in request.rpc]
        assert {bytes(request.answer[9:12]) for request in answers} == {b"202"}
        late = run.steps.get("late", {"text": "too slow"})
        assert (late["text"], "ping" in run.steps) == ("too slow", True), "its client continues"
        if run.peer.name == "mcp1":
            assert len(answers) == 7, "five samplings, a form, and a form that came too late"

    def test_a_call_cut_twice_runs_once_and_its_client_receives_every_message(self, run: Run) -> None:
        expected = told("step", 6)
        if run.peer.rewinds:
            expected.insert(3, expected[2])
        assert heard(run, "cut", expected) == "walked"
        assert run.counts["walk"] == 1

    def test_each_connection_of_a_cut_call_carries_the_events_after_its_position(self, run: Run) -> None:
        call = called(run, "walk")
        for connection in resumptions(run, stream_of(call)):
            carried = ids(connection)
            # A reset may have swallowed everything that was sent.
            if carried:
                assert carried[0] == connection.resumes
                start = position(carried[0])
                assert [position(event) for event in carried] == [start + i for i in range(len(carried))]

    def test_the_result_of_a_call_cut_twice_arrives_on_a_third_connection(self, run: Run) -> None:
        call = called(run, "walk")
        first, *rest = resumptions(run, stream_of(call))
        assert b"step 1" in call.answer
        assert b"walked" not in call.answer
        assert b"step 3" in first.answer
        assert b"walked" not in first.answer
        assert rest
        assert b"walked" in rest[-1].answer

    def test_a_stream_that_the_server_ended_is_resumed_once(self, run: Run) -> None:
        call = called(run, "hang_up")
        assert b"still here" not in call.answer
        [resumed] = resumptions(run, stream_of(call))
        assert b"still here" in resumed.answer

    def test_the_standalone_stream_is_resumed_where_it_was_cut(self, run: Run) -> None:
        first, *rest = [
            request for request in run.requests if request.method == "GET" and standalone(run, request)
        ]
        assert first.resumes == ""
        assert b"cut standalone" in first.answer
        [again] = rest
        assert again.resumes == last_id(first)
        assert b"notifications/resources/updated" in again.answer

    def test_no_client_resumes_a_finished_call_more_than_once(self, run: Run) -> None:
        """The older TypeScript client resumes a stream that ended with an error; it must receive an answer that stops it."""
        ended = [called(run, "late_error"), called(run, "hang")]
        visits = Counter(len(resumptions(run, stream_of(call))) for call in ended)
        assert visits == ({1: 2} if run.peer.name == "ts1" else {0: 2})

    def test_a_client_deletes_its_session(self, run: Run) -> None:
        [deleted] = [request for request in run.requests if request.method == "DELETE"]
        assert deleted.answer.startswith(b"HTTP/1.1 204")
        assert deleted is run.requests[-1]


def called(run: Run, tool: str) -> Request:
    """Return the one POST that called a tool."""
    [found] = [
        request
        for request in run.requests
        if request.rpc.get("method") == "tools/call" and request.rpc["params"]["name"] == tool
    ]
    return found


def stream_of(request: Request) -> str:
    """Return the name of the stream that answered a request: its event ids begin with it."""
    return last_id(request).partition(".")[0]


def last_id(request: Request) -> str:
    """Return the last event id among the bytes that answered a request."""
    found = ids(request)
    assert found, f"no stream: {bytes(request.answer)!r}"
    return found[-1]


def ids(request: Request) -> list[str]:
    """Return the event ids among the bytes that answered a request."""
    return [line[4:] for line in request.answer.decode().split("\n") if line.startswith("id: ")]


def position(event: str) -> int:
    """Return the sequence number in an event id."""
    return int(event.split(".")[1])


def resumptions(run: Run, stream: str) -> list[Request]:
    """Return the GETs that asked for the rest of a stream."""
    return [request for request in run.requests if request.resumes.startswith(f"{stream}.")]


def standalone(run: Run, request: Request) -> bool:
    """True if a GET read the standalone stream."""
    first = next(request for request in run.requests if request.method == "GET")
    return request is first or request.resumes.startswith(f"{stream_of(first)}.")
