"""Real clients start the server themselves and talk to it over its standard input and output."""

from pathlib import Path

import pytest

from tests.interop.checks import Conversation, heard, told
from tests.interop.peers import PEERS, Peer, Run, over_stdio


@pytest.fixture(scope="module", params=PEERS, ids=str)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One conversation for each client, held once."""
    peer: Peer = request.param
    directory: Path = tmp_path_factory.mktemp(str(peer))
    return over_stdio(peer, directory)


class TestStdio(Conversation):
    def test_a_call_during_which_the_client_calls_again_keeps_its_order(self, run: Run) -> None:
        assert heard(run, "cut", told("step", 6)) == "walked"
        assert run.counts["walk"] == 1
