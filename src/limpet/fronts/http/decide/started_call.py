"""A call whose handler has started, and which is not answered yet.

Most handlers never wait: they have ended after one pass of the loop. So `limpet serve` checks the call then
(`answer_nowait`), and a call that is answered by this check needs no task except its handler's. A call that takes
longer is looked at again when something has happened to it (`look_later`): its answer is mostly ready then, and it
still needs no task. Otherwise it is awaited. An ASGI host has a task for each request, and awaits every call.

Each era implements the check and the wait: `session_posts.py`, `sessionless_posts.py`.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from limpet.fronts.http.write.answer import Answer
from limpet.fronts.http.write.response import WaitingResponse


class StartedCall:
    """A call that has started, and the response that waits for it."""

    __slots__ = ("response",)

    def __init__(self, response: WaitingResponse) -> None:
        self.response: WaitingResponse = response

    def answer_nowait(self) -> bool:
        """Answer the call if its handler has ended and the answer can be written at once. Call it after one pass."""
        raise NotImplementedError

    def look_later(self, look: Callable[[bool], object]) -> bool:  # noqa: ARG002
        """Call `look` when something has happened to the call, or with False after a silence. False: await it now."""
        return False

    def answer_later(self, *, woken: bool) -> bool:
        """Answer the call after `look_later` as `answer_nowait` does; False: await it."""
        raise NotImplementedError

    def left(self) -> None:
        """Record that the client has disconnected before the call was checked."""

    def wait(self) -> Coroutine[Any, Any, Answer | None]:
        """Let the loop turn once; then answer the call, also if it takes long, or return its answer."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, Answer | None]:
        return self.wait().__await__()


Unfinished = StartedCall | Coroutine[Any, Any, object] | None
"""The rest of serving a request. None: nothing is left to do."""


async def finish(unfinished: Unfinished) -> None:
    """Do the rest of serving a request."""
    if isinstance(unfinished, StartedCall):
        await unfinished.response.conclude(unfinished.wait())
    elif unfinished is not None:
        await unfinished
