"""A stdio server whose results are bytes that a careless relay would break. Also the source of these bytes for tests."""

import json
import sys

LARGE = 3 * 1024 * 1024
RESULTS = {
    "plain": b'{"content":[],"text":"caf\xc3\xa9"}',
    "invalid": b'{"content":[],"text":"caf\xe9"}',
    "cut": b'{"content":[],"text":"\xf0\x9f\x98"}',
    "surrogate": b'{"content":[],"text":"\xed\xa0\x80"}',
    "half": b'{"content":[],"text":"\\ud800"}',
    "nan": b'{"content":[],"n":NaN}',
    "list": b'[{"content":[]}]',
    "breaks": b'{\r"content":\r [],\r\n "text": "line\\nbreak"\t}',
    "large": b'{"content":[],"text":"' + b"x" * LARGE + b'"}',
    "numbers": b'{"content":[],"n":12345678901234567890123,"m":1.10,"e":1E400}',
}
"""Results by name. Only JSON's own white space differs between a line and a body: a line has no line feed."""


def main() -> None:
    """Answer line by line."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        if message["method"] == "initialize":
            result = json.dumps(
                {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "raw", "version": "1"},
                }
            ).encode()
        elif message["method"] == "tools/call":
            result = RESULTS[message["params"]["name"]].replace(b"\n", b"")
        else:
            sys.stdout.buffer.write(
                b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"?"}}\n' % message["id"]
            )
            sys.stdout.buffer.flush()
            continue
        sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (message["id"], result))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
