"""Opening a TCP connection to a host. Its addresses are tried in turn, each a moment after the one before (RFC 8305).

Without that, a host whose first address does not answer (often its IPv6 address) would take the whole time limit.
"""

import asyncio
import socket
from contextlib import suppress
from itertools import chain, zip_longest
from typing import Any, Final

STAGGER_SECONDS: Final = 0.25
"""How long one address may take before the next one is tried beside it."""
PROBES: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
"""TCP keep-alive: a peer that has disappeared is noticed within about forty seconds, also on a silent stream."""
AddressInfo = tuple[Any, ...]
"""As `getaddrinfo` returns it."""


async def dial(host: str, port: int) -> socket.socket:
    """Return a connected socket.

    Raises:
        OSError: no address of the host accepts a connection, or the host is unknown.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if len(found) == 1:
        return await _connect(found[0])
    return await _first(in_turn(list(found)))


def in_turn(found: list[AddressInfo]) -> list[AddressInfo]:
    """Return the addresses so that the families alternate, and the preferred one is first."""
    preferred = found[0][0]
    same = [info for info in found if info[0] == preferred]
    other = [info for info in found if info[0] != preferred]
    return [info for info in chain(*zip_longest(same, other)) if info is not None]


async def _first(addresses: list[AddressInfo]) -> socket.socket:
    loop = asyncio.get_running_loop()
    waiting, running = addresses[::-1], set[asyncio.Task[socket.socket]]()
    error: BaseException | None = None
    try:
        while waiting or running:
            if waiting:
                running.add(loop.create_task(_connect(waiting.pop())))
            done, _ = await asyncio.wait(
                running, timeout=STAGGER_SECONDS if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                running.discard(task)
                error = task.exception()
                if error is None:
                    # Any other one that has connected is closed below.
                    return task.result()
        raise error or OSError("the host has no address")
    finally:
        for task in running:
            if not task.cancel() and task.exception() is None:
                task.result().close()


async def _connect(info: AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = info
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)  # noqa: FBT003 - the signature of the standard library
        with suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in PROBES:
                if hasattr(socket, name):
                    made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made
