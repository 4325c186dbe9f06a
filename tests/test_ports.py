"""tools/ports.py: no two processes get the same port, and its server can listen on it."""

import socket
import subprocess
import sys
from pathlib import Path

from tools.ports import free_port

ROOT = Path(__file__).parents[1]
TEN_FROM = (
    "import sys; from itertools import count; import tools.ports as p; p._numbers = count(int(sys.argv[1]));"
)


def test_another_process_that_begins_at_the_same_number_gets_other_ports() -> None:
    mine = [free_port() for _ in range(5)]
    print_ten = TEN_FROM + "print(*(p.free_port() for _ in range(10)))"
    words = [sys.executable, "-c", print_ten, str(min(mine) - 15_000)]
    theirs = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert not set(mine) & {int(port) for port in theirs}


def test_a_server_listens_on_its_port_although_it_is_reserved() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert free_port() != port
