"""Bad messages get their expected answers, and a healthy client beside them does not notice; `python -m tests.http.bad_messages` sends more."""

import asyncio

from tests.http.bad_messages import run
from tests.http.serving import Process


def test_bad_messages_are_refused_while_a_healthy_client_works(everything: Process) -> None:
    tester, size = asyncio.run(run(everything.port, 240, seed=1))
    assert tester.faults == []
    assert size >= 320
    assert tester.healthy > 0
    assert "Traceback" not in everything.output()
