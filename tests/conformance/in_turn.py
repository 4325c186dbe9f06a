"""The command that the suite starts as a client: it passes everything to the process that has imported the client, and ends as that does.

The suite starts the clients of all its scenarios at once. Run by one process, one after another, none of them
measures another, and nothing is imported sixty times. The other end is in `turns.py`.
"""

import json
import os
import socket
import sys

if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(os.environ["CONFORMANCE_TURNS"])
        socket.send_fds(line, [json.dumps([sys.argv[-1], dict(os.environ)]).encode()], [1, 2])
        sys.exit(int(line.recv(16) or b"70"))
