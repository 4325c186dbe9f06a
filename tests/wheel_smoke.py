"""Use the package as a stranger would: installed, and started by uvx from its file, in front of a program. No checkout, no test tools.

Run by tools/wheel_test.sh: `wheel_smoke.py UVX WHEEL`.
"""

import json
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

SERVER = '''
from limpet import Server

server = Server("smoke", version="1.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''


def request(request_id: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()


INITIALIZE = request(
    1,
    "initialize",
    protocolVersion="2025-11-25",
    capabilities={},
    clientInfo={"name": "smoke", "version": "1"},
)
CALL = request(2, "tools/call", name="add", arguments={"a": 20, "b": 22})


def check(answer: Any) -> None:
    assert answer["result"]["content"][0]["text"] == "42", answer


def over_stdio(command: list[str], *words: str) -> None:
    done = subprocess.run(
        [*command, "--stdio", *words],
        input=INITIALIZE + b"\n" + CALL + b"\n",
        capture_output=True,
        timeout=120,
        check=True,
    )
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers[1]["result"]["serverInfo"]["name"] == "smoke"
    check(answers[2])


def over_http(command: list[str], *words: str) -> None:
    command = [*command, "--http", "127.0.0.1:0", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(line.split()[1] for line in server.stderr if "serving" in line)
            headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            with urllib.request.urlopen(
                urllib.request.Request(url, INITIALIZE, headers), timeout=60
            ) as answer:
                headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
            with urllib.request.urlopen(urllib.request.Request(url, CALL, headers), timeout=60) as answer:
                check(json.load(answer))
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()


def main() -> None:
    with tempfile.TemporaryDirectory() as room:
        target = Path(room) / "smoke.py"
        target.write_text(SERVER)
        command = [str(Path(sys.executable).parent / "limpet"), "serve", f"{target}:server"]
        over_stdio(command)
        over_http(command)
        if len(sys.argv) > 1:
            uvx, wheel = sys.argv[1:]
            once = [uvx, "--from", wheel, "limpet", "serve"]
            over_stdio(once, "--", *command, "--stdio")
            over_http(once, "--", *command, "--stdio")


if __name__ == "__main__":
    main()
