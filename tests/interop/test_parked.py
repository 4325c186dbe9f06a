"""A call that waits for its client outlives the client's connection, and the client itself."""

import json
import signal
from pathlib import Path
from typing import Any, Final

from tests.interop.peers import MODERN_PEERS, Peer, converse, counted, serving, started

PEER: Final = MODERN_PEERS[0]


def test_another_process_continues_the_call_of_a_killed_process(tmp_path: Path) -> None:
    with serving(tmp_path, PEER.environment(tmp_path)) as port:
        url = {"url": f"http://127.0.0.1:{port}/mcp"}
        asked = _asked_and_killed(PEER, {**PEER.asked("ask"), **url})
        assert asked["resultType"] == "input_required"
        given = {name: asked[name] for name in ("inputRequests", "requestState")}
        steps, _ = converse(PEER, {**PEER.asked("answer"), **url, **given})
        again, _ = converse(PEER, {**PEER.asked("answer"), **url, **given})
    assert steps["answered"]["text"] == "accept: Ada takes 2"
    assert again["answered"] == steps["answered"]
    assert counted(tmp_path)["book"] == 1


def _asked_and_killed(peer: Peer, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the questions that a client got before it was killed."""
    with started(peer, asked) as process:
        assert process.stdout is not None
        printed = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert [step["step"] for step in printed] == ["connected", "asked"]
    found: dict[str, Any] = printed[1]
    return found
