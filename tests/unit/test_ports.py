"""The default ports: the system's clock and randomness."""

import os
import sys

import pytest

from limpet.ports import SystemClock, SystemRandom


def test_tokens_never_repeat_and_are_as_long_as_asked() -> None:
    random = SystemRandom()
    tokens = [random.token(12) for _ in range(100_000)]
    assert len(set(tokens)) == len(tokens)
    assert {len(token) for token in tokens} == {24}
    assert len(random.token(10_000)) == 20_000


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_forked_child_hands_out_tokens_of_its_own() -> None:
    random = SystemRandom()
    random.token(1)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, random.token(16).encode())
        os._exit(0)
    mine = random.token(16)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        theirs = pipe.read()
    os.wait()
    assert len(theirs) == len(mine)
    assert theirs != mine


def test_the_clock_goes_forward() -> None:
    clock = SystemClock()
    assert clock.now() <= clock.now()
    assert clock.wall() > 1_700_000_000
