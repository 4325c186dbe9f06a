"""A stdio server with bad habits, each a tool. It starts fast: standard library only. It speaks 2025-11-25."""

import json
import os
import subprocess
import sys
import time
from typing import Any

ABILITIES: dict[str, Any] = {"tools": {}, "logging": {}, "resources": {"subscribe": True}}
received: list[str] = []
"""Methods, and answers to questions of ours."""


def write(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")), flush=True)


def text(number: Any, said: str) -> None:
    write(id=number, result={"content": [{"type": "text", "text": said}]})


def log(data: str) -> None:
    write(method="notifications/message", params={"level": "error", "data": data})


def call(number: Any, name: str, arguments: dict[str, Any]) -> None:  # noqa: C901, PLR0912 - a list of habits
    match name:
        case "say":
            text(number, "said")
        case "env":
            text(number, json.dumps({key: os.environ.get(key) for key in arguments["names"]}))
        case "pid":
            text(number, str(os.getpid()))
        case "received":
            text(number, json.dumps(received))
        case "silent":
            pass
        case "big":
            text(number, "x" * int(arguments["size"]))
        case "flood":
            for index in range(int(arguments["n"])):
                log(f"{index} {'x' * int(arguments.get('size', 0))}")
            text(number, "flooded")
        case "deaf":
            text(number, "deaf from now on")
            time.sleep(1_000)
        case "close_output":
            os.close(1)
            time.sleep(1_000)
        case "close_input":
            os.close(0)
            text(number, "closed")
            time.sleep(1_000)
        case "ask_later":
            text(number, "asked")
            write(id="odd", method="elicitation/create", params={"message": "?", "requestedSchema": {}})
        case "leave":
            # A starter that ends and leaves the real server behind.
            left = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)
            log(str(left.pid))
            sys.exit("left")
        case _:
            text(number, f"there is no habit {name}")


for line in sys.stdin:
    message = json.loads(line)
    method, number, params = message.get("method", "answer"), message.get("id"), message.get("params", {})
    received.append(json.dumps(message.get("error", {}).get("code")) if method == "answer" else method)
    if method == "answer":
        print("answered", received[-1], file=sys.stderr, flush=True)
    elif method == "initialize":
        write(
            id=number,
            result={
                "protocolVersion": "2025-11-25",
                "capabilities": ABILITIES,
                "serverInfo": {"name": "odd", "version": "1"},
            },
        )
    elif method == "tools/call":
        call(number, params["name"], params.get("arguments", {}))
    elif method == "notifications/cancelled":
        # The answer comes after the cancellation.
        text(params["requestId"], "late")
    elif number is not None and method in {
        "resources/subscribe",
        "resources/unsubscribe",
        "logging/setLevel",
    }:
        write(id=number, result={})
    elif number is not None:
        write(id=number, error={"code": -32601, "message": "unknown"})
