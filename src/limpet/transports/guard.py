"""A shell that ends our children if we are killed. Each of our processes has one shell for all its children.

If we are killed with SIGKILL, none of our code can stop a child. So a small shell runs in its own session, and reads
from a pipe that we hold open:

    + GROUP          a child was started: stop its process group if we die
    - GROUP          the child was stopped: its group has ended
    end of the pipe  we are dead: SIGTERM to the groups that are left, 2 s later SIGKILL

The kernel closes the pipe of a dead process, so the shell cannot miss our end. It runs while we have children. No other
process may hold the pipe open: it is closed on exec, and a process that is forked from us closes its copy.

A shell that has ended, or that does not read, is replaced. We keep the list of groups too, so the new one gets all of
them. The old one is killed first: otherwise it could read the end of its pipe later and stop children that still work.

On Windows there are no process groups and there is no guard.
"""

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Final

SCRIPT: Final = """
groups=' '
while read -r sign group; do
  case $sign in
    +) groups="$groups$group " ;;
    -) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
[ "$groups" = ' ' ] && exit
for group in $groups; do kill -TERM -"$group"; done
sleep 2
for group in $groups; do kill -KILL -"$group"; done
"""


class Guard:
    """Watches the process groups of our children: `starting` around the start of each, `leave` after its end.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children = 0
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[bytes] | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def pid(self) -> int | None:
        """The process id of the shell; None while there is no child."""
        return self._shell.pid if self._shell is not None else None

    @contextlib.contextmanager
    def starting(self) -> Iterator[Callable[[int], None]]:
        """Start a child within this context, and call the given function with its group.

        Raises:
            OSError: the shell cannot be started.
        """
        with self._lock:
            if self._shell is None or self._shell.poll() is not None:
                self._start()
            self._children += 1
        try:
            yield self._watch
        except BaseException:
            self._release()
            raise

    def leave(self, group: int) -> None:
        """The child has been stopped, and its group has ended."""
        with self._lock:
            self._groups.discard(group)
            self._say("-", group)
        self._release()

    def _watch(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            self._say("+", group)

    def _release(self) -> None:
        with self._lock:
            self._children -= 1
            if not self._children:
                self._dismiss()

    def _start(self) -> None:
        self._kill()
        if os.name != "posix":
            return
        self._shell = subprocess.Popen(  # noqa: S603 - a constant
            ["/bin/sh", "-c", SCRIPT],
            stdin=subprocess.PIPE,
            # Our standard output may be a pipe whose reader waits for our end.
            stdout=subprocess.DEVNULL,
            # It could only report that a group has ended already.
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            # A signal to our group must not reach it.
            start_new_session=True,
            env={"PATH": os.defpath},
        )
        # A shell that was stopped must not stop us too.
        os.set_blocking(_input(self._shell), False)
        for group in self._groups:
            self._write("+", group)

    def _say(self, sign: str, group: int) -> None:
        try:
            self._write(sign, group)
        except OSError:
            with contextlib.suppress(OSError):
                self._start()

    def _write(self, sign: str, group: int) -> None:
        if self._shell is not None:
            os.write(_input(self._shell), f"{sign} {group}\n".encode())

    def _dismiss(self) -> None:
        """Let the shell end: it has no group to end."""
        shell, self._shell = self._shell, None
        if shell is not None and shell.stdin is not None:
            shell.stdin.close()
            # It ends at once, but the event loop must not wait even so long.
            threading.Thread(target=shell.wait, name="limpet-guard", daemon=True).start()

    def _kill(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None and shell.stdin is not None:
            shell.kill()
            shell.wait()
            shell.stdin.close()

    def _forget(self) -> None:
        """In a forked process: the children and the shell belong to the process that we were forked from."""
        shell, self._shell = self._shell, None
        self._lock = threading.Lock()
        self._groups.clear()
        self._children = 0
        if shell is not None and shell.stdin is not None:
            os.close(shell.stdin.fileno())
            # It is not our child, so it must not be waited for.
            shell.returncode = 0


def _input(shell: "subprocess.Popen[bytes]") -> int:
    if shell.stdin is None:
        raise BrokenPipeError
    return shell.stdin.fileno()


GUARD: Final = Guard()
"""The guard of this process."""
