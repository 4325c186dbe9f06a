"""`ctx.sync`: the context for plain functions, which run in worker threads. Its methods block.

Each call runs on the engine's event loop while the thread waits. When the exchange has ended (cancelled, timed
out, session closed), a call raises `concurrent.futures.CancelledError`, and so does a call that is waiting: a
thread cannot be cancelled from outside.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from limpet.server.context.context import Context
    from limpet.server.context.session_view import SessionView
    from limpet.server.context.state import State

P = ParamSpec("P")
T = TypeVar("T")


class _Bridge:
    """Runs coroutines on the event loop of an exchange's task, called from a thread, as long as that task runs."""

    def __init__(self, owner: asyncio.Task[None]) -> None:
        self._owner = owner

    def over(self, method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
        """Return a function that calls the method and blocks until it has finished."""

        def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
            if asyncio._get_running_loop() is not None:
                raise RuntimeError(
                    "ctx.sync is for plain functions in threads; here, await the method of ctx"
                )
            work = self._while_owned(method(*args, **kwargs))
            return asyncio.run_coroutine_threadsafe(work, self._owner.get_loop()).result()

        return blocking

    async def _while_owned(self, work: Coroutine[Any, Any, T]) -> T:
        if self._owner.done():
            work.close()
            raise asyncio.CancelledError
        task = asyncio.ensure_future(work)

        def end(_owner: object) -> None:
            task.cancel()

        self._owner.add_done_callback(end)
        try:
            return await task
        finally:
            self._owner.remove_done_callback(end)


class BlockingState:
    """`ctx.state` for threads. `update` calls its function on the event loop, so that function must not block."""

    def __init__(self, state: "State", bridge: _Bridge) -> None:
        self.get: Final = bridge.over(state.get)
        self.set: Final = bridge.over(state.set)
        self.delete: Final = bridge.over(state.delete)
        self.set_if_absent: Final = bridge.over(state.set_if_absent)
        self.incr: Final = bridge.over(state.incr)
        self.update: Final = bridge.over(state.update)


class BlockingSession:
    """The methods of `ctx.session` that send, for threads."""

    def __init__(self, session: "SessionView", bridge: _Bridge) -> None:
        self.notify: Final = bridge.over(session.notify)
        self.log: Final = bridge.over(session.log)
        self.elicitation_complete: Final = bridge.over(session.elicitation_complete)


class BlockingContext:
    """`ctx.sync`: the methods of `Context` for plain functions in threads. Each blocks until it has finished."""

    def __init__(self, ctx: "Context", owner: asyncio.Task[None]) -> None:
        bridge = _Bridge(owner)
        self.progress: Final = bridge.over(ctx.progress)
        self.log: Final = bridge.over(ctx.log)
        self.debug: Final = bridge.over(ctx.debug)
        self.info: Final = bridge.over(ctx.info)
        self.warning: Final = bridge.over(ctx.warning)
        self.error: Final = bridge.over(ctx.error)
        self.resource_updated: Final = bridge.over(ctx.resource_updated)
        self.close_stream: Final = bridge.over(ctx.close_stream)
        self.start_task: Final = bridge.over(ctx.start_task)
        self.sample: Final = bridge.over(ctx.sample)
        self.elicit: Final = bridge.over(ctx.elicit)
        self.elicit_url: Final = bridge.over(ctx.elicit_url)
        self.roots: Final = bridge.over(ctx.roots)
        self.new_handle: Final = bridge.over(ctx.new_handle)
        self.session: BlockingSession = BlockingSession(ctx.session, bridge)
        self._ctx = ctx
        self._bridge = bridge

    @property
    def state(self) -> BlockingState:
        """The session's state. Raises NoSession for a client without a session."""
        return BlockingState(self._ctx.state, self._bridge)

    def state_for(self, handle: str) -> BlockingState:
        """Return the state that is kept under a handle. Raises HandleNotFound as `Context.state_for` does."""
        return BlockingState(self._bridge.over(self._ctx.state_for)(handle), self._bridge)
