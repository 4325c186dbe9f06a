"""A process that was stopped and continues: it does not run the calls of clients that have disconnected meanwhile."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.http.client import Client, Connection, call, http_test, value
from tests.messages import JSON_TYPE, Json, metadata, modern_headers
from tests.support import stays
from tests.workers.fleet import fleet

META = metadata()


def posted(client: Client, message: Json) -> bytes:
    """Return a POST as it is sent; one with metadata of its own as in 2026-07-28."""
    body = json.dumps(message).encode()
    headers = {name.lower(): text for name, text in client.headers().items()}
    headers |= {"host": "127.0.0.1", "content-type": JSON_TYPE, "content-length": str(len(body))}
    if message["params"]["_meta"] is META:
        headers |= modern_headers("tools/call", message["params"])
    lines = [f"{name}: {text}\r\n" for name, text in headers.items()]
    return "POST /mcp HTTP/1.1\r\n{}\r\n".format("".join(lines)).encode() + body


@pytest.mark.parametrize("pooled", [False, True], ids=["new connections", "open connections"])
@http_test
async def test_a_stopped_process_later_runs_no_call_of_a_client_that_left_and_all_of_one_that_waits(
    tmp_path: Path, pooled: bool
) -> None:
    marks = tmp_path / "marks"
    with fleet() as stopped:
        client = await Client.opened(stopped.port)
        messages = {
            text: call(number, "mark", file=str(marks), text=text)
            for number, text in enumerate(["left", "left sessionless", "waits", "waits sessionless"], 10)
        }
        for text, message in messages.items():
            if "sessionless" in text:
                message["params"]["_meta"] = META
        lines = {text: await Connection.open(stopped.port) for text in messages} if pooled else {}
        await client.call("who")
        stopped.tell(signal.SIGSTOP)
        try:
            for text, message in messages.items():
                line = lines[text] = lines.get(text) or await Connection.open(stopped.port)
                await line.send(posted(client, message))
            await asyncio.sleep(2)  # real time is the subject: how long the process was stopped
            for text, line in lines.items():
                if text.startswith("left"):
                    line.cut()
            await asyncio.sleep(0.1)  # the ends of the connections must reach the socket of a stopped process
        finally:
            stopped.tell(signal.SIGCONT)
        for text, line in lines.items():
            if text.startswith("waits"):
                response = await line.response()
                assert value(await response.answer()) == text
        await stays(lambda: not marks.read_text().count("left"), 0.2)
        await client.call("who")
        assert sorted(marks.read_text().splitlines()) == ["waits", "waits sessionless"]
