"""fastmcp's client reads our results: a wrapped value is unwrapped."""

import subprocess
from pathlib import Path
from typing import Final

from tests.client.servers import SERVE
from tests.support import BOUND

ROOT: Final = Path(__file__).parents[2]
CLIENT: Final = [
    str(ROOT / ".peers/fastmcp/bin/python"),
    str(ROOT / "tests" / "interop" / "clients" / "unwrap.py"),
]


def test_fastmcps_client_gets_the_value_and_not_the_object_that_wraps_it_in_both_eras() -> None:
    command = [*CLIENT, *SERVE, "--stdio"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == ["auto ['hi', 5, 21.5]", "legacy ['hi', 5, 21.5]"]
