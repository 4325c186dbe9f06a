"""A stdio server that starts fast, for a file with many of them. Standard library only.

python small.py NAME [never | slow | FILE]     never: it answers nothing. slow: its lists take a minute. FILE: `die` ends it, and it does not
                                               start again while the file exists
"""

import json
import pathlib
import sys
import time
from typing import Any

name, *how = sys.argv[1:]
mortal = pathlib.Path(how[0]) if how and how[0] not in {"never", "slow"} else None
if mortal is not None and mortal.exists():
    sys.exit("it was killed")

TOOLS = [{"name": one, "inputSchema": {"type": "object"}} for one in ("who", *(["die"] if mortal else []))]


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            info = {"name": name, "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            if how == ["slow"]:
                time.sleep(60)  # Longer than any list may wait for it.
            return {"tools": TOOLS}
        case "tools/call":
            if params["name"] == "die" and mortal is not None:
                mortal.touch()
                sys.exit(9)
            return {"content": [{"type": "text", "text": name}]}
        case _:
            return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or how == ["never"]:
        continue
    result = result_of(message["method"], message.get("params", {}))
    unknown = {"error": {"code": -32601, "message": "unknown"}}
    answer = unknown if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
