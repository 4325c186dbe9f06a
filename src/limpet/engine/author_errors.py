"""Which exceptions in a task come from the author's code, and which ones end the task itself.

An author's code may raise anything: a Rust extension panics with a `BaseException`, a script calls
`sys.exit`, a library does not catch its own `CancelledError`. If such an error passed, its call would
have no answer, and `SystemExit` and `KeyboardInterrupt` would stop the event loop and the
server with it. So every task that runs an author's code catches `BaseException` and asks here.
"""

import asyncio


def ends_the_task(error: BaseException) -> bool:
    """Return True if an error ends the current task, and is not a fault of the code that it runs.

    True for a cancellation of this task (by another task, or by the code that runs in it), and for every error once the
    event loop has ended: then the interpreter closes the remaining coroutines, and they must not wait for anything.
    """
    if asyncio._get_running_loop() is None:
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
