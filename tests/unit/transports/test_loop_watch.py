"""A function that blocks the event loop is named in the log: once, with its line and the time."""

import asyncio
import sys
import threading
from types import FrameType

import pytest

from limpet.testing import NotingObserver
from limpet.transports import loop_watch
from limpet.transports.loop_watch import LoopWatch, blocking
from tests.support import BOUND, async_test, until


class Seen(NotingObserver):
    """Sets an event when a blocked loop is noted: the loop itself cannot wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.blocked = threading.Event()

    def note(self, event: str, /, **facts: object) -> None:
        super().note(event, **facts)
        if event == "loop.blocked":
            self.blocked.set()


@async_test
async def test_a_function_that_blocks_the_loop_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "PERIOD", 0.1)
    monkeypatch.setattr(loop_watch, "LIMIT", 0.2)
    seen = Seen()

    async def tool(seconds: float) -> bool:
        return seen.blocked.wait(seconds)  # It blocks the loop.

    with LoopWatch(seen):
        assert await asyncio.create_task(tool(BOUND))
        await until(lambda: bool(seen.named("loop.free")))
        seen.blocked.clear()
        assert not await asyncio.create_task(tool(0.5))  # Real time: a second block is not named again.
    [blocked] = seen.named("loop.blocked")
    code = tool.__code__
    assert blocked["function"] == code.co_qualname
    assert blocked["place"] == f"{__file__}:{code.co_firstlineno + 1}"
    [free] = seen.named("loop.free")
    assert float(str(free["seconds"])) >= float(str(blocked["seconds"])) >= 0.2


@async_test
async def test_frames_of_the_program_that_runs_the_loop_do_not_count() -> None:
    def frame() -> FrameType | None:
        return sys._current_frames()[threading.get_ident()]

    found = blocking(frame())
    assert found is not None
    names = [found[0].f_code.co_name, found[1].f_code.co_name]
    assert names[1] == "frame"
    assert "pytest" not in found[0].f_code.co_filename
    assert blocking(None) is None


def test_a_thread_without_a_loop_runs_no_function_of_an_author() -> None:
    assert blocking(sys._current_frames()[threading.get_ident()]) is None
