"""Clients of 2025-06-18 whose connection is cut before the first message of a slow call: they resume it."""

from pathlib import Path

import pytest

from tests.interop.peers import Peer, converse, counted, serving
from tests.interop.proxy import Cut, proxied

OLDER = Peer("ts_older", "legacy", ".node/bin/node", "ts_older.mjs", "node", 5, rewinds=False)


@pytest.mark.parametrize("sdk", ["sdk-1.13", "sdk-1.23"])
def test_a_silent_call_cut_before_its_first_message_is_resumed_and_runs_once(
    sdk: str, tmp_path: Path
) -> None:
    opening = Cut(b"notifications/cancelled", loses=False)
    with (
        serving(tmp_path, OLDER.environment(tmp_path)) as port,
        proxied(port, [opening]) as proxy,
    ):
        steps, errors = converse(OLDER, {"sdk": sdk, "url": proxy.url})
    assert opening.done
    assert steps["connected"]["version"] == "2025-06-18"
    assert steps["silent"]["text"] == "silent"
    assert steps["ticks"]["notes"] == [1, 2, 3]
    assert counted(tmp_path)["slow"] == 1
    [call] = [request for request in proxy.requests if request.rpc.get("params", {}).get("name") == "slow"]
    assert b"silent" not in call.answer
    assert [request for request in proxy.requests if request.resumes]
    assert errors == ""
