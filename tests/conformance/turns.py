"""Forks the client under test for one scenario after another, each with the output and the environment it was given.

Run as a program, with the path of its socket; `in_turn.py` is the other end.
"""

import asyncio
import json
import os
import socket
import sys
from typing import Final

from tests.conformance.client import main

_LONGEST: Final = 1 << 20


def serve(path: str) -> None:
    """Take turns until killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen(128)
        print("ready", flush=True)
        while True:
            line, _ = listening.accept()
            with line:
                said, descriptors, _, _ = socket.recv_fds(line, _LONGEST, 2)
                child = os.fork()
                if not child:
                    url, environment = json.loads(said)
                    _play(url, environment, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                _, status = os.waitpid(child, 0)
                line.send(str(os.waitstatus_to_exitcode(status)).encode())


def _play(url: str, environment: dict[str, str], descriptors: list[int]) -> None:
    """Be the client; never returns."""
    status = 70
    try:
        for descriptor, ours in zip(descriptors, (1, 2), strict=True):
            os.dup2(descriptor, ours)
        os.environ.clear()
        os.environ.update(environment)
        status = asyncio.run(main(url))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
