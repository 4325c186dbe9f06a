"""Run the client under test when no other one runs: the suite starts the clients of all its scenarios at once.

One after another they cost the machine what they cost alone, and what they measure is not each other.
"""

import fcntl
import os
import runpy
from pathlib import Path

if __name__ == "__main__":
    with Path(os.environ["CONFORMANCE_TURN"]).open("ab") as turn:
        # Before anything heavy is imported: whoever waits here is small.
        fcntl.flock(turn, fcntl.LOCK_EX)
        runpy.run_path(str(Path(__file__).with_name("client.py")), run_name="__main__")
