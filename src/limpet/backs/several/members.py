"""The members of a server that is made of others, and the time that a request for all of them waits for each.

One member that hangs must not delay the others. So a request for all waits for each of them for its `patience`, and
uses the answers that are there. The member that is missing is *late* from then on: no request waits for it until it has
answered something, and none of the same kind until it has answered one of that kind; or until LATE_SECONDS have passed.
Its work goes on in the background (`presence.py` for connections, `lists.py` for lists), and the clients learn of a
change when it is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from limpet.core.names import AS_THEY_ARE, NameKind, Naming
from limpet.engine.back import Back
from limpet.engine.exchange import Exchange
from limpet.errors import McpError
from limpet.ports import Observer

T = TypeVar("T")
PATIENCE: Final = 5.0
LATE_SECONDS: Final = 60.0
"""How long a late member is not waited for."""
_STEP: Final = 0.25
"""The seconds of one wait for late members."""
_ALL: Final = ""
"""Every kind of request."""
Has = Callable[[NameKind, str, Exchange], bool]
"""Says at once whether a member has a component. Only functions of this process can."""


class Member:
    """One of several servers."""

    def __init__(
        self,
        name: str,
        back: Back,
        observer: Observer,
        names: Naming = AS_THEY_ARE,
        *,
        patience: float = PATIENCE,
        has: Has | None = None,
    ) -> None:
        """Take a back whose components have the names that clients see, and the naming that made them."""
        self.name: str = name
        """Its name in the file, or in the code that includes it."""
        self.key: str = name if has is None else ""
        """Its name in cursors. The functions of this process have none: a server behind may have the name of the
        whole."""
        self.back: Back = back
        self._observer = observer
        self.names: Naming = names
        self.patience: float = patience
        """How many seconds a request for all members waits for it."""
        self.has: Has | None = has
        self.answered: int = 0
        """How many calls it has answered."""
        self._late_until: dict[str, float] = {}
        """By kind of request."""

    @property
    def title(self) -> str:
        """Its name, and how clients recognise its components, for a model."""
        shown = self.names.outer("tools", "…")
        return self.name if shown in {None, "…"} else f"{self.name} (names: {shown})"

    def is_late(self, kind: str, now: float) -> bool:
        """True if it has not answered such a request in time, or nothing at all."""
        return now < max(self._late_until.get(kind, 0.0), self._late_until.get(_ALL, 0.0))

    def may_have(self, kind: NameKind, name: str) -> bool:
        """True if a component of this member could have this name."""
        return self.names.inner(kind, name) is not None

    def could_have(self, kind: NameKind, name: str, exchange: Exchange) -> bool:
        """True if a component of this member could have this name; functions of this process are known exactly."""
        return self.may_have(kind, name) and (self.has is None or self.has(kind, name, exchange))

    def may_hide(self, kind: NameKind, name: str) -> bool:
        """True if a component of this member, hidden or not, could have this name."""
        return self.names.unhidden(kind, name) is not None

    def begin(self, kind: str, work: Callable[[], Awaitable[T]]) -> "asyncio.Task[T]":
        """Begin to answer a request. The end, also a failure, is an answer.

        `work` is not called if it is cancelled at once.
        """
        task = asyncio.get_running_loop().create_task(_awaited(work))
        task.add_done_callback(partial(self._ended, kind))
        return task

    def _ended(self, kind: str, task: "asyncio.Task[T]") -> None:
        if not task.cancelled():
            self._late_until.pop(kind, None)
            self._late_until.pop(_ALL, None)
            task.exception()  # Otherwise asyncio logs an error that no task has read.

    def was_late(self, kind: str, now: float) -> None:
        """Do not wait for it for a while: it has not answered in time."""
        if not self.is_late(kind, now):
            self._observer.note("upstream.late", error=f"no answer to {kind} within {self.patience:g} s")
        self._late_until[kind] = self._late_until[_ALL] = now + LATE_SECONDS


class Answers(dict[Member, T]):
    """The results of the members that answered in time. `failed` has those that failed."""

    failed: dict[Member, McpError]


async def in_time(kind: str, tasks: Mapping[Member, asyncio.Task[T]]) -> Answers[T]:
    """Wait for a kind of request to several members; return the results that are there in time. The others go on.

    If the caller is cancelled, so is the work.

    Raises:
        Exception: work raised anything but an McpError.
    """
    now = asyncio.get_running_loop().time
    prompt = {task: member.patience for member, task in tasks.items() if not member.is_late(kind, now())}
    waited = 0.0
    try:
        while waiting := [task for task, most in prompt.items() if not task.done() and waited < most]:
            # In short waits, each of which counts as one: no member can answer while our own loop is blocked.
            await asyncio.wait(waiting, timeout=_STEP)
            waited += _STEP
        answers = Answers[T]()
        answers.failed = {}
        for member, task in tasks.items():
            if not task.done():
                member.was_late(kind, now())
            elif task.cancelled():
                answers.failed[member] = McpError(0, "ended")
            elif isinstance(error := task.exception(), McpError):
                answers.failed[member] = error
            else:
                answers[member] = task.result()
    except BaseException:
        for task in tasks.values():
            task.cancel()
        raise
    return answers


def begun(
    kind: str, members: Iterable[Member], work: Callable[[Member], Awaitable[T]]
) -> dict[Member, asyncio.Task[T]]:
    """Begin a kind of request to several members at once."""
    return {member: member.begin(kind, partial(work, member)) for member in members}


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
