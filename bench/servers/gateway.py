"""Limpet in front of $SERVERS servers at one address: all of them are the URL in $UPSTREAM. The first one keeps its names."""

import os

from limpet import Remote, Server

server = Server("gateway", version="1")
for number in range(int(os.environ["SERVERS"])):
    name = f"part{number}"
    server.include(Remote(os.environ["UPSTREAM"]), name if number else "", name=name)
