"""An authorization server for attacks: it has much to say about some tokens, and refuses others slowly."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any, Final

AUDIENCE: Final = "http://127.0.0.1/mcp"
HONEST: Final = "honest"
"""The token of the well-behaved client."""
LARGE: Final = "large"
"""The beginning of tokens with many claims. All other tokens are refused."""
_SLOW: Final = 0.1
"""Seconds until a token is refused."""
_MANY: Final = [{"of": [number]} for number in range(400)]


@contextlib.contextmanager
def issuer() -> Iterator[str]:
    """Serve in a thread; yield the URL of the introspection."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    url: list[str] = []

    async def serve() -> None:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0)
        url.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/introspect")
        ready.set()
        with contextlib.suppress(asyncio.CancelledError):
            await server.serve_forever()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serving))
    serving = loop.create_task(serve())
    thread.start()
    ready.wait()
    try:
        yield url[0]
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
        loop.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        form = await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
        token = form.decode().partition("token=")[2].partition("&")[0]
        claims: dict[str, Any] = {"active": True, "sub": token, "aud": AUDIENCE}
        if token.startswith(LARGE):
            claims["groups"] = _MANY
        elif token != HONEST:
            claims = {"active": False}
            await asyncio.sleep(_SLOW)
        body = json.dumps(claims).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        await writer.drain()
    writer.close()
