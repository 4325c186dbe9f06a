"""Limits of a child process: the system enforces them, also for the processes that the child starts."""

import sys

import pytest

from limpet.errors import NotSent
from limpet.transports.child import Child, ChildLimits, ChildOptions
from tests.support import async_test

REPORT = """
import resource, subprocess, sys
sys.stdin.readline()  # The limits are set by now.
kinds = (resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)
print(*[resource.getrlimit(kind)[0] for kind in kinds], flush=True)
try:
    bytearray(1 << 30)
except MemoryError:
    print("no memory", flush=True)
"""


@async_test
async def test_a_child_has_its_limits() -> None:
    limits = ChildLimits(memory=512 << 20, cpu=500, files=64)
    child = Child([sys.executable, "-c", REPORT], ChildOptions(limits=limits))
    await child.start()
    try:
        await child.write(b"go\n")
        assert await child.read() == f"{512 << 20} 500 64".encode()
        assert await child.read() == b"no memory"
    finally:
        await child.aclose()


@async_test
async def test_a_limit_that_the_system_refuses_is_an_error() -> None:
    # A program that has ended already has no limits: this one waits for its input.
    child = Child(["cat"], ChildOptions(limits=ChildLimits(files=-5)))
    try:
        with pytest.raises(NotSent, match="cannot limit the program to -5"):
            await child.start()
    finally:
        await child.aclose()
