"""A stdio server that starts fast: it knows `initialize` and nothing else. Standard library only."""

import json
import sys
from typing import Any

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        answer: dict[str, Any] = {
            "result": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "little", "version": "1"},
            }
        }
    else:
        answer = {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
