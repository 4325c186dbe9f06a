"""A balancer cuts every response after three seconds; a call of five seconds is answered, and runs once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.http.client import Cut, http_test, sessionless
from tests.interop.peers import MODERN_PEERS, converse, serving
from tests.interop.proxy import proxied

LIMIT: Final = 3.0
SERVER: Final = f"{Path(__file__).parent / 'patient.py'}:server"


@pytest.mark.slow
def test_a_five_second_call_gets_through_a_balancer_that_cuts_after_three(tmp_path: Path) -> None:
    peer = MODERN_PEERS[0]
    with (
        serving(tmp_path, {}, SERVER) as port,
        proxied(port, [], lasting=LIMIT) as proxy,
        ThreadPoolExecutor() as threads,
    ):
        listening = threads.submit(_listen, proxy.port)
        steps, errors = converse(peer, {**peer.asked("toil"), "url": proxy.url})
    # A response without a handover is cut.
    assert isinstance(listening.exception(), Cut)
    assert steps["toil"]["text"] == "done in run 1"
    rounds = [request for request in proxy.requests if request.rpc["method"] == "tools/call"]
    # No response lasts three seconds.
    assert len(rounds) >= 2
    assert not [request for request in rounds if request.cut]
    # The progress of each step goes to the open response, and is dropped between two responses.
    told = [done for done, _, _ in steps["toil"]["told"]]
    assert told
    assert told == sorted(set(told))
    assert errors == ""


@http_test
async def _listen(port: int) -> None:
    response = await sessionless(port, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    await response.body()
