"""Children that are missing, die or say nothing: one clear error, in time, with the child's own stderr."""

import json
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from limpet import Client
from limpet.client import ClientTimes
from limpet.errors import NotSent, OutcomeUnknown
from tests.client.servers import PATIENT
from tests.support import async_test

SERVER: Final = """
from limpet import Server
server = Server("small")

@server.tool
def hello(name: str) -> str:
    return f"hello {name}"

server.run()
"""
OLD: Final = """
import json, sys
first = json.loads(sys.stdin.readline())
if first["method"] != "initialize":
    sys.exit("expected initialize")
result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
print(json.dumps({"jsonrpc": "2.0", "id": first["id"], "result": result}), flush=True)
sys.stdin.read()
"""

SLOW: Final = """
import json, sys
probe, second = json.loads(sys.stdin.readline()), json.loads(sys.stdin.readline())
assert [probe["method"], second["method"]] == ["server/discover", "initialize"]
found = {"id": probe["id"], "result": {"supportedVersions": ["2026-07-28"], "capabilities": {}}}
refused = {"id": second["id"], "error": {"code": -32600, "message": "this connection has no sessions"}}
print(*(json.dumps({"jsonrpc": "2.0", **answer}) for answer in ORDER), sep="\\n", flush=True)
sys.stdin.read()
"""
"""It reads both requests before it answers one, as a program does that needs longer for its start than the probe waits."""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@async_test
async def test_a_missing_program_is_one_clear_error_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    with pytest.raises(NotSent, match="cannot start no-such-program: there is no such program"):
        await Client(["no-such-program", "--stdio"]).__aenter__()
    assert time.monotonic() - started < 20
    assert capfd.readouterr() == ("", "")


@async_test
async def test_a_missing_directory_is_named() -> None:
    with pytest.raises(NotSent, match="there is no directory /no/such/place"):
        await Client([sys.executable], cwd="/no/such/place").__aenter__()


@async_test
async def test_the_error_for_a_child_that_dies_at_once_gives_the_reason() -> None:
    with pytest.raises(NotSent, match="No module named 'no_such_module'") as failed:
        await Client(python("import no_such_module")).__aenter__()
    assert "it ended with status 1" in str(failed.value)
    assert "Traceback (most recent call last)" in str(failed.value)


@async_test
async def test_the_error_for_a_child_that_dies_during_a_call_gives_the_reason() -> None:
    code = SERVER.replace(
        'return f"hello {name}"', "import os, sys; print('out of paper', file=sys.stderr); os._exit(7)"
    )
    async with Client(python(code), times=PATIENT) as client:
        with pytest.raises(OutcomeUnknown, match=r"(?s)it ended with status 7; .*out of paper"):
            await client.call_tool("hello", {"name": "you"})


@async_test
async def test_a_silent_child_fails_after_the_connect_time() -> None:
    silent = ["sh", "-c", "echo loading the model >&2; exec sleep 100"]
    client = Client(silent, times=ClientTimes(connect=1.0, probe=0.1))
    started = time.monotonic()
    with pytest.raises(NotSent, match=r"(?s)within 1 s of its start .*loading the model"):
        await client.__aenter__()
    assert time.monotonic() - started < 40


@async_test
async def test_a_server_that_dies_of_the_probe_is_started_again_for_the_handshake() -> None:
    async with Client(python(OLD), times=PATIENT) as client:
        assert client.agreed.version == "2025-06-18"
    with pytest.raises(NotSent, match="expected initialize"):
        await Client(python(OLD), protocol_version="sessionless").__aenter__()


@pytest.mark.parametrize("order", ["found, refused", "refused, found"])
@async_test
async def test_a_server_that_answers_the_probe_late_keeps_its_era(order: str) -> None:
    async with Client(python(SLOW.replace("ORDER", f"({order})")), times=ClientTimes(probe=0.01)) as client:
        assert client.agreed.version == "2026-07-28"


@async_test
async def test_a_server_of_a_chosen_era_may_answer_the_probe_late() -> None:
    late = f"import time; time.sleep(0.3)\n{SERVER}"
    async with Client(python(late), protocol_version="sessionless", times=ClientTimes(probe=0.01)) as client:
        assert (await client.call_tool("hello", {"name": "you"})).text == "hello you"


@async_test
async def test_the_path_of_a_file_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "my server.py"
    file.write_text(SERVER, encoding="utf-8")
    for target in (
        str(file),
        file,
        {"mcpServers": {"small": {"command": sys.executable, "args": [str(file)]}}},
    ):
        async with Client(target, times=PATIENT) as client:
            assert (await client.call_tool("hello", {"name": "you"})).text == "hello you"


RECORDING: Final = """
import json, sys
with open(sys.argv[1], "w") as record:
    for line in sys.stdin:
        record.write(line)
        record.flush()
        print("error: this is only a log line", file=sys.stderr, flush=True)
        message = json.loads(line)
        if "id" in message:
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "content": []}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@async_test
async def test_a_program_reads_nothing_but_messages_and_may_write_to_stderr(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with Client([*python(RECORDING), str(record)], times=PATIENT) as client:
        result = await client.call_tool("x", {"text": "two\nlines\u2028"})
        assert result.content == []
        assert "only a log line" in client.stderr
    lines = record.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    assert [json.loads(line)["method"] for line in lines] == ["server/discover", "tools/call"]
