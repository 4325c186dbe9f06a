"""The everything server limited to 2026-07-28: it has no sessions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from everything import server as everything

from limpet import Server

server = Server("everything", version="1.0", eras="sessionless")
server.include(everything)
