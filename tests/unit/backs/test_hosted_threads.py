"""The threads of hosted objects: plain functions get them in turn by their clients."""

import asyncio
import threading
from contextvars import copy_context

import anyio
import anyio.to_thread
import pytest

from limpet.backs.hosted.run import share_threads
from limpet.transports.threads import OWNER
from tests.support import BOUND, async_test, until


class Functions:
    """Plain functions that hold their thread until they are released, and the order in which they began."""

    def __init__(self, tokens: int) -> None:
        self.limiter = anyio.to_thread.current_default_thread_limiter()
        self.limiter.total_tokens = tokens
        share_threads(anyio)
        share_threads(anyio)
        self.release = threading.Event()
        self.began: list[str] = []

    def start(self, owner: str) -> "asyncio.Task[None]":
        """Start a function of an owner, as the frameworks do."""
        context = copy_context()
        context.run(OWNER.set, owner)
        work = anyio.to_thread.run_sync(self._hold, owner)
        return asyncio.get_running_loop().create_task(work, context=context)

    def _hold(self, owner: str) -> None:
        self.began.append(owner)
        assert self.release.wait(BOUND)


@async_test
async def test_a_function_of_another_client_runs_while_one_client_has_all_threads_it_can_get() -> None:
    functions = Functions(40)
    many = [functions.start("a") for _ in range(200)]
    await until(lambda: len(functions.began) == 35)
    other = functions.start("b")
    await until(lambda: "b" in functions.began)
    functions.release.set()
    await asyncio.gather(*many, other)
    assert len(functions.began) == 201
    assert functions.limiter.borrowed_tokens == 0


@async_test
async def test_functions_that_wait_get_a_thread_in_turn_by_their_clients() -> None:
    functions = Functions(1)
    started = [functions.start(owner) for owner in "aaaabbc"]
    await until(lambda: bool(functions.began))
    functions.release.set()
    await asyncio.gather(*started)
    assert "".join(functions.began) == "aabcaba"


@async_test
async def test_a_call_that_is_cancelled_while_it_waits_takes_no_thread() -> None:
    functions = Functions(1)
    first, dropped, last = (functions.start(owner) for owner in "abc")
    await until(lambda: bool(functions.began))
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    functions.release.set()
    await asyncio.gather(first, last)
    assert functions.began == ["a", "c"]
    assert functions.limiter.borrowed_tokens == 0
    with pytest.raises(RuntimeError):
        functions.limiter.release()


@async_test
async def test_a_token_that_was_taken_before_is_given_back() -> None:
    limiter = anyio.to_thread.current_default_thread_limiter()
    await limiter.acquire()
    share_threads(anyio)
    limiter.release()
    assert limiter.borrowed_tokens == 0
