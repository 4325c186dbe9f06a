"""A server whose replicas share a store."""

import asyncio
import itertools
import os
import sys
import time
from pathlib import Path

from limpet import Context, Server, Settings, Times

LEASE = 4.0
"""It is short, so that a test sees a death noticed. A loaded machine may pause a process for seconds: a replica that lives must not be
declared dead."""

server = Server(
    "shop",
    version="1.0",
    settings=Settings(
        times=Times(
            lease=LEASE,
            lease_renewal=0.4,
            sweep=0.2,
            stream_after=0.1,
            keep_alive=float(os.environ.get("SHOP_KEEP_ALIVE", "15")),
            retry=(0.05, 0.1),
            drain=float(os.environ.get("SHOP_DRAIN", "8")),
            drain_notice=float(os.environ.get("SHOP_NOTICE", "0")),
        )
    ),
)


@server.tool
async def who() -> int:
    """Tell which process this is."""
    return os.getpid()


@server.tool
async def bump(ctx: Context) -> int:
    """Count in the session."""
    return await ctx.state.incr("n")


@server.tool
async def counted(ctx: Context) -> int:
    return int(await ctx.state.get("n", 0))


@server.tool
async def steps(n: int, seconds: float, ctx: Context) -> int:
    """Report progress, and tell each time which process does the work."""
    for step in range(1, n + 1):
        await asyncio.sleep(seconds)
        await ctx.progress(step, n, str(os.getpid()))
    return os.getpid()


@server.tool
async def steps_until(file: str, ctx: Context) -> int:
    """Report progress until there is such a file; note in another one that this has begun."""
    Path(f"{file}.begun").touch()
    for step in itertools.count(1):
        await ctx.progress(step, None, str(os.getpid()))
        if Path(file).exists():
            break
        await asyncio.sleep(0.1)
    return os.getpid()


@server.tool
async def held(file: str) -> int:
    """Wait for such a file, and report nothing; note in another one that this has begun."""
    Path(f"{file}.begun").touch()
    await _exists(file)
    return os.getpid()


async def _exists(file: str) -> None:
    while not Path(file).exists():
        await asyncio.sleep(0.02)


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the client's model; its answer may come to another process."""
    answer = await ctx.sample("who?", max_tokens=5)
    return answer.model


@server.tool
async def lend(value: int, ctx: Context) -> str:
    """Keep a value under a handle."""
    handle = await ctx.new_handle()
    await (await ctx.state_for(handle)).set("value", value)
    return handle


@server.tool
async def lent(handle: str, ctx: Context) -> int:
    return int(await (await ctx.state_for(handle)).get("value"))


@server.tool(task="optional")
async def errand(seconds: float) -> int:
    """Work on as a task, where the client knows tasks."""
    await asyncio.sleep(seconds)
    return os.getpid()


@server.tool
async def block(seconds: float) -> str:
    """Hold the whole process up, as a careless author would."""
    time.sleep(seconds)
    return "blocked"


@server.tool
async def die() -> str:
    """End the process at once."""
    sys.stderr.flush()
    os._exit(7)


@server.tool
async def mark(file: str, text: str) -> str:
    """Write a line into a file, so that a test sees that this has run."""
    with Path(file).open("a", encoding="utf-8") as marks:
        marks.write(f"{text}\n")
    return text


def _note(file: str, text: str) -> None:
    with Path(file).open("a", encoding="utf-8") as notes:
        notes.write(f"{text}\n")


@server.tool
def alone(file: str, end: str) -> int:
    """Note when this begins and ends, and wait for a file between: a plain function, which nothing can stop."""
    _note(file, "begin")
    while not Path(end).exists():
        time.sleep(0.02)
    time.sleep(0.1)
    _note(file, "end")
    return os.getpid()


@server.tool
async def alone_and_tidy(file: str, end: str) -> int:
    """Do the same as a coroutine function that waits for the file also if it is cancelled."""
    _note(file, "begin")
    try:
        await _exists(end)
    finally:
        await _exists(end)
        _note(file, "end")
    return os.getpid()
