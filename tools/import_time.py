"""Check that `from holdfast import Server` is quick. Run it with the interpreter of an environment that has only the wheel.

Two checks, and neither fails because a machine is slow or busy:

- Some modules may not be loaded: they take long, and only a server that runs needs them.
- The processor time of the import is compared with that of a reference, the import of fixed modules. Both are the
  smallest of several fresh processes, measured in turn, less the time of an interpreter that imports nothing.
"""

import os
import subprocess
import sys

STATEMENT = "from holdfast import Server"
REFERENCE = "import asyncio, inspect, msgspec"
LIMIT = 1.5
"""How many times the reference the import may take. It takes 1.21 to 1.32, and took 2.0 when `Server` imported its engine."""
ROUNDS = 15
HEAVY = (
    "asyncio",
    "cryptography",
    "email",
    "holdfast.backs",
    "holdfast.cli",
    "holdfast.client",
    "holdfast.engine.engine",
    "holdfast.fronts",
    "holdfast.stores.base",
    "holdfast.transports",
    "holdfast.upstream",
    "http",
    "httptools",
    "logging",
    "pydantic",
    "rich",
    "sqlite3",
    "ssl",
    "typer",
)
GUARD = f"import sys; {STATEMENT}; print(*[name for name in {HEAVY!r} if name in sys.modules])"


def loaded() -> list[str]:
    """Return the heavy modules that the statement loads."""
    return subprocess.run(
        [sys.executable, "-c", GUARD], check=True, capture_output=True, text=True
    ).stdout.split()


def processor_seconds(code: str) -> float:
    """Return the user and system time of a fresh process that runs the code."""
    process = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        sys.exit(f"`{code}` failed")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    if found := loaded():
        sys.exit(f"`{STATEMENT}` loads {', '.join(found)}: import it where a server that runs needs it")
    codes = ("pass", REFERENCE, STATEMENT)
    rounds = [[processor_seconds(code) for code in codes] for _ in range(ROUNDS)]
    bare, reference, statement = map(min, zip(*rounds, strict=True))
    ratio = (statement - bare) / (reference - bare)
    print(
        f"`{STATEMENT}` takes {statement * 1000:.0f} ms of processor time, the bare interpreter {bare * 1000:.0f} ms, "
        f"`{REFERENCE}` {reference * 1000:.0f} ms: {ratio:.2f} times the reference, at most {LIMIT}"
    )
    if ratio > LIMIT:
        sys.exit(f"`{STATEMENT}` became slower: see `python -X importtime -c '{STATEMENT}'`")


if __name__ == "__main__":
    main()
