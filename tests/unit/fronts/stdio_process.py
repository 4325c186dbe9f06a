"""A server in a process of its own, spoken to over pipes as a client does."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from tests.messages import metadata

SMALL: Final = Path(__file__).parent / "fixtures" / "small.py"


class StdioClient:
    """Writes lines, reads lines, keeps everything that arrived."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.received: list[Any] = []
        self.raw: list[bytes] = []

    def say(self, method: str, request_id: int | str | None = None, **params: Any) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if request_id is not None:
            message["id"] = request_id
        self.write(json.dumps(message).encode())

    def call(self, request_id: int | str, tool: str, **arguments: Any) -> None:
        self.say("tools/call", request_id, name=tool, arguments=arguments)

    def sessionless(self, request_id: int | str, method: str, **params: Any) -> None:
        """Say a request of 2026-07-28."""
        meta = metadata(capabilities={"sampling": {}})
        self.say(method, request_id, **{"_meta": meta, **params})

    def answer(self, request_id: int | str, result: object) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode())

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")

    async def open(self) -> None:
        client = {"name": "pipe", "version": "0"}
        self.say(
            "initialize",
            "init",
            protocolVersion="2025-11-25",
            clientInfo=client,
            capabilities={"sampling": {}},
        )
        assert "result" in await self.answered("init")
        self.say("notifications/initialized")

    async def next(self) -> Any:
        """Return the next line; it must be JSON, since nothing else may be on stdout."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line.endswith(b"\n"), f"stdout ended with {line!r}"
        self.raw.append(line)
        self.received.append(json.loads(line))
        return self.received[-1]

    async def answered(self, request_id: int | str | None) -> Any:
        """Return the next answer with this id."""
        while True:
            message = await self.next()
            if "method" not in message and message.get("id") == request_id:
                return message

    async def notified(self, method: str) -> Any:
        """Return the params of the next notification of this method."""
        while True:
            message = await self.next()
            if message.get("method") == method:
                return message["params"]

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def rest(self) -> tuple[list[Any], str, int]:
        """Wait for the process to end; return the rest of stdout, all of stderr, and the exit status."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        out, err = await asyncio.gather(self.process.stdout.read(), self.process.stderr.read())
        status = await self.process.wait()
        return [json.loads(line) for line in out.splitlines()], err.decode(), status


@contextlib.asynccontextmanager
async def small_server(*options: str) -> AsyncIterator[StdioClient]:
    """Start the small server over stdio; it is killed afterwards if it still runs."""
    async with python("-m", "limpet", "serve", str(SMALL), "--stdio", *options) as client:
        yield client


@contextlib.asynccontextmanager
async def python(*arguments: str) -> AsyncIterator[StdioClient]:
    """Run Python and be the client of its stdio server; it is killed afterwards if it still runs."""
    # As clients start it: without PYTHONUNBUFFERED Python buffers its output.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=16 * 1024 * 1024,
    )  # fmt: skip
    try:
        yield StdioClient(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        # Lets the pipes' transports close before the loop does.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await process.communicate()
