"""What an author's code may raise in the engine's tasks, and what of it is the author's.

An author's code may raise anything: a Rust extension panics with a `BaseException`, a script calls
`sys.exit`, a library lets a `CancelledError` of its own pass. Let through, such an error would leave
its call without an answer, and `SystemExit` and `KeyboardInterrupt` would stop the event loop and the
server with it. So every task that runs an author's code catches `BaseException` and asks here.
"""

import asyncio


def ends_the_task(error: BaseException) -> bool:
    """Tell whether an error is the end of the current task, and not a fault of the code that it runs.

    True for a cancellation that another task asked for, and for everything once the event loop has gone:
    the interpreter closes the coroutines that are left, which must not wait for anything any more.
    """
    if asyncio._get_running_loop() is None:
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
