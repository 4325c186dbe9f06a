"""`python -m tests.http.fuzz`: random bytes against the server of `limpet serve`, without sockets.

Each round takes requests of the corpus, changes them a little, joins them, and gives them to a connection in random parts.
Rules for every input:

- the connection never raises, and no task fails;
- the parts do not matter: the same bytes in one part and in single bytes lead to the same answers, and to the same requests of
  the application;
- requests that differ in a few values, each in one read, are read as in single bytes: the connection remembers heads;
- after a refusal, nothing more is served;
- every request of the application has an answer, in order.
"""

import argparse
import asyncio
import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from limpet.config import Limits
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from limpet.fronts.http.read.head import RawHeaders
from limpet.fronts.http.read.request import Channel, Gone, RawRequest
from tests.http.paper import Paper, quiet
from tests.http.smuggling import CORPUS

LIMITS: Final = Limits(headers=2_048)
PIECES: Final = (
    b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b":", b",", b";", b"0", b"1", b"ffff", b"-", b"+", b"\xff", b"/", b"#", b"%",
    b"chunked", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n",
    b"Connection: close\r\n", b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"HTTP/1.0", b"0\r\n\r\n", b"X: " + b"y" * 3_000,
)  # fmt: skip


VALUED: Final = (
    b"Mcp-Session-Id", b"mcp-name", b"Authorization", b"MCP-Protocol-Version", b"X", b"Connection", b"Expect", b"Host",
    b"Transfer-Encoding", b"User-Agent", b"X-Forwarded-For",
)  # fmt: skip
VALUES: Final = (
    b"a",
    b"b",
    b"a b",
    b"2025-11-25",
    b"",
    b" a",
    b"a ",
    b"\xe9",
    b"a\tb",
    b"close",
    b"chunked",
    b"c" * 1_500,
)


AROUND: Final = (b"",) * 6 + (b"\r\n", b"\r\n\r\n")
"""Bytes before and behind a request: mostly none."""


class Outcome(NamedTuple):
    """The reaction of a connection to some bytes."""

    statuses: list[int]
    served: list[tuple[str, str, bytes]]
    """Method, path and body of each request that the application has read."""
    heads: list[tuple[RawHeaders, dict[str, str], str, str]]
    """Header lines, headers, session and version of each of them."""


async def _whole_body(channel: Channel) -> bytes:
    body = channel.take_body()
    if body is not None:
        return body
    parts, more = [], True
    while more:
        part, more = await channel.read()
        parts.append(part)
    return b"".join(parts)


async def outcome(parts: Sequence[bytes]) -> Outcome:
    """Give the parts to a connection, and return its reaction. Raises if a task or the connection failed."""
    served: list[tuple[str, str, bytes]] = []
    heads: list[tuple[RawHeaders, dict[str, str], str, str]] = []
    failed: list[BaseException] = []

    async def serve(request: RawRequest, channel: Channel) -> None:
        try:
            served.append((request.method, request.path, await _whole_body(channel)))
            lines = channel.asgi()[0]["headers"]
            heads.append((lines, dict(request.head), request.session_id, request.version))
            assert channel.answer(200, [(b"content-length", b"0")], b"") or channel.is_closing()
        except Gone:
            return
        except BaseException as error:
            failed.append(error)
            raise

    members = Members(serve, Deadlines(LIMITS, 30.0))
    connection, paper = HttpConnection(members), Paper()
    connection.connection_made(paper)
    for part in parts:
        if paper.is_closing():
            break
        connection.data_received(part)
        for _ in range(3):
            await asyncio.sleep(0)
    await quiet(paper)
    connection.connection_lost(None)
    while members.tasks:
        await asyncio.sleep(0)
    assert not failed, failed
    assert not members.connections
    return Outcome([status for status in paper.statuses if status != 100], served, heads)


def mutated(chance: random.Random) -> bytes:
    """Return some requests of the corpus, changed at random."""
    cases = [chance.choice(list(CORPUS.values())).sent for _ in range(chance.randint(1, 3))]
    data = bytearray(b"".join(cases))
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at:at] = chance.choice(PIECES)
            case 1:
                del data[at : at + chance.randint(1, 8)]
            case 2:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case _:
                begin = chance.randrange(len(data) + 1)
                data[at:at] = data[begin : begin + chance.randint(1, 40)]
    return bytes(data)


def alike(chance: random.Random) -> list[bytes]:
    """Return requests whose heads differ in some values, a few of them changed at random."""
    names = [b"Content-Type", *chance.sample(VALUED, 3)]
    reads: list[bytes] = []
    for _ in range(chance.randint(2, 5)):
        lines = [b"%b: %b" % (name, chance.choice(VALUES)) for name in names]
        body = b"x" * chance.randint(0, 12)
        if chance.randrange(4) == 0:
            changed = bytearray(b"\r\n".join(lines))
            at = chance.randrange(len(changed))
            changed[at : at + chance.randint(0, 2)] = chance.choice(PIECES)
            lines = [bytes(changed)]
        length = len(body) + (chance.randrange(8) == 0)
        lines.append(b"Content-Length: %d\r\n\r\n" % length)
        before, behind = chance.choice(AROUND), chance.choice(AROUND)
        reads.append(before + b"\r\n".join((b"POST /x HTTP/1.1\r\nHost: a", *lines)) + body + behind)
    return reads


async def check_alike(reads: list[bytes]) -> None:
    """Check that remembered heads do not change anything: a connection that gets single bytes remembers none."""
    found = await outcome(reads)
    plain = await outcome([bytes([byte]) for byte in b"".join(reads)])
    assert _known(found) == _known(plain), (reads, found, plain)


def split(data: bytes, chance: random.Random) -> list[bytes]:
    """Return the data in random parts."""
    marks = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(1, 6)))
    return [data[a:b] for a, b in zip([0, *marks], [*marks, len(data)], strict=True) if b > a]


async def check(data: bytes, chance: random.Random) -> None:
    """Check one input."""
    whole = await outcome([data])
    assert len([status for status in whole.statuses if status == 200]) == len(whole.served), (data, whole)
    refused = [at for at, status in enumerate(whole.statuses) if status != 200]
    assert refused in ([], [len(whole.statuses) - 1]), (data, whole)
    for parts in (split(data, chance), [data[at : at + 1] for at in range(len(data))]):
        other = await outcome(parts)
        assert _known(other) == _known(whole), (data, whole, other)


def _known(found: Outcome) -> tuple[object, ...]:
    """Return the part of a reaction that is the same for all parts. Of two faults, the parts decide which is found first."""
    return [min(status, 400) for status in found.statuses], found.served, found.heads


def fuzz(seed: int, rounds: int) -> None:
    """Check so many inputs of a seed."""
    for number in range(rounds):
        chance = random.Random(f"{seed}.{number}")
        data, reads = mutated(chance), alike(chance)
        try:
            asyncio.run(check(data, chance))
            asyncio.run(check_alike(reads))
        except BaseException as error:
            raise AssertionError(f"seed {seed}, round {number}: {data!r} {reads!r}") from error


def main() -> None:
    """Fuzz until the rounds are over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20_000)
    options = parser.parse_args()
    fuzz(options.seed, options.rounds)
    print(f"{options.rounds} rounds of seed {options.seed}: nothing found")


if __name__ == "__main__":
    main()
