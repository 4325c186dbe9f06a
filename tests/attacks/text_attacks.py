"""Ways to make a server remember, repeat or parse texts of clients, one function each; as in `memory_attacks.py`."""

import contextlib
from typing import Any, Final

from tests.attacks.memory_attacks import Attack, Target, call, modern, post
from tests.messages import LATEST, request


async def remembered_texts(target: Target) -> None:
    """Session ids, paths and descriptions of clients that are long, and different each time."""
    own: Any = {str(at): {"a": {}} for at in range(900)}

    async def one(number: int) -> None:
        await target.ask(post(request(1, "ping"), f"{number:015000}"))
        await target.ask(_bodiless("GET", f"/{number:012000}?{number:03000}"))
        if number % 10 == 0:
            session = await target.session({"experimental": {f"own {number}": {}, **own}})
            await target.ask(_bodiless("DELETE", "/mcp", session))

    await target.many(5_000, one)


async def used_sessions(target: Target) -> None:
    """Sessions whose clients describe themselves with 16 KiB, and which are used once: a shared store may remember them."""
    own: Any = {str(at): {"a": {}} for at in range(900)}

    async def one(number: int) -> None:
        session = await target.session({"experimental": {f"own {number}": {}, **own}})
        if session:
            await target.ask(post(request(1, "ping"), session))
            await target.ask(post(request(2, "tools/list"), session))

    await target.many(3_000, one)


async def progress_tokens(target: Target) -> None:
    """Progress tokens of 500 KB, which a server would send with each message about progress."""
    session = await target.session()
    arguments = {"name": "report", "arguments": {"number": 300, "size": 1}}

    async def one(number: int) -> None:
        token = f"{number:0500000}"
        if number % 2:
            await target.send(modern(number, "tools/call", arguments, progressToken=token))
        else:
            params = {**arguments, "_meta": {"progressToken": token}}
            await target.send(post(request(number, "tools/call", params), session))

    await target.many(400, one)


async def unread_messages(target: Target) -> None:
    """Calls that send many long messages, which their client does not read."""
    sessions = [await target.session() for _ in target.some(20)]
    arguments = {"number": 300, "size": 50_000}

    async def one(number: int) -> None:
        if number % 2:
            params = {"name": "report", "arguments": arguments}
            await target.send(modern(number, "tools/call", params, progressToken=number))
        else:
            session = sessions[number % len(sessions)]
            await target.send(post(call(number, "report", **arguments), session))

    await target.many(4_000, one)


async def single_bytes(target: Target) -> None:
    """Bodies in chunks of one byte."""
    head = post(b"").partition(b"Content-Length")[0]
    body = b"1\r\n \r\n" * 100_000
    await target.many(400, lambda _: target.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + body))


async def echoed_texts(target: Target) -> None:
    """Names and URIs of some MB that an error would contain; each connection is cut before it has the answer."""
    session = await target.session()

    async def one(number: int) -> None:
        text = f"note://{number:03000000}"
        unknown = call(number, text), call(number, "fail", text=text), request(number, text)
        await target.ask(
            post((*unknown, request(number, "resources/read", {"uri": text}))[number % 4], session)
        )

    await target.many(400, one)


async def replays(target: Target) -> None:
    """A stream of 900 KB that many connections resume and do not read."""
    session = await target.session()
    reader, writer = await target.send(post(call(1, "chatty", size=900_000), session))
    with contextlib.suppress(OSError, EOFError):
        event = (await reader.readuntil(b"\nid: "), await reader.readline())[1].strip().decode()
        writer.transport.abort()
        get = _bodiless("GET", "/mcp", session, **{"Accept": "text/event-stream", "Last-Event-ID": event})
        await target.many(2_000, lambda _: target.send(get))


def _bodiless(method: str, path: str, session: str = "", **headers: str) -> bytes:
    """Return the bytes of a request without a body."""
    lines = {"Host": "127.0.0.1", **headers}
    if session:
        lines |= {"Mcp-Session-Id": session, "Mcp-Protocol-Version": LATEST}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode()


TEXT_ATTACKS: Final[tuple[Attack, ...]] = (
    remembered_texts, used_sessions, progress_tokens, unread_messages, single_bytes, echoed_texts, replays,
)  # fmt: skip
