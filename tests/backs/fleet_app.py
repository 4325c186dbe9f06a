"""The application of the replicas of test_replicas.py: one of the three backs, named by the environment. Its lease is short."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from limpet import Hosted, Process, Remote, Settings, Times

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / ".peers" / "mcp1" / "lib"
SHARED: Any = {
    "namespace": "keeper",
    "strict": "FLEET_STRICT" in os.environ,
    "settings": Settings(
        affinity="meta:test/conversation",
        times=Times(
            lease=4.0,
            lease_renewal=0.4,
            sweep=0.2,
            stream_after=0.1,
            retry=(0.05, 0.1),
            drain=8,
            drain_notice=0,
        ),
    ),
}


def keeper1() -> object:
    """Return the object of `mcp` 1. Its package comes after ours on the path, because both run in this process."""
    sys.path += [str(found) for found in PEERS.glob("python3*/site-packages")]
    spec = importlib.util.spec_from_file_location("keeper1", HERE / "peers" / "keeper1.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.mcp


match os.environ["FLEET_BACK"]:
    case "process":
        server: Any = Process([sys.executable, str(HERE / "keeper.py")], **SHARED)
    case "remote":
        server = Remote(os.environ["FLEET_URL"], **SHARED)
    case _:
        server = Hosted(keeper1(), forward_key=os.environ.get("FLEET_KEY"), **SHARED)
