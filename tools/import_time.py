"""Check that `from limpet import Server` is quick. Run it with the interpreter of an environment that has only the wheel.

Two checks. Neither measures time, so a slow or busy machine changes nothing:

- Some modules may not be loaded: they take long, and only a server that runs needs them.
- The calls that the import makes, of Python and of C functions, are compared with those of a reference, the import of
  fixed modules. The processor time of both has about the same proportion.
"""

import os
import subprocess
import sys

STATEMENT = "from limpet import Server"
REFERENCE = "import asyncio, inspect, msgspec"
LIMIT = 1.4
"""How many times the calls of the reference the import may make. It makes 1.23 times as many, and 2.2 times with the engine."""
HEAVY = (
    "asyncio",
    "cryptography",
    "email",
    "limpet.backs",
    "limpet.cli",
    "limpet.client",
    "limpet.engine.engine",
    "limpet.fronts",
    "limpet.stores.base",
    "limpet.transports",
    "limpet.upstream",
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
COUNT = """
import sys
calls = 0
def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(count)
{}
sys.setprofile(None)
print(calls)
"""


def output(code: str) -> str:
    """Return the output of a fresh process that runs the code. The order of its sets is fixed: calls depend on it."""
    fixed = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=fixed
    ).stdout


def calls(statement: str) -> int:
    """Return how many functions a fresh process calls for the statement, when its modules are compiled."""
    output(statement)
    return int(output(COUNT.format(statement)))


def main() -> None:
    if found := output(GUARD).split():
        sys.exit(f"`{STATEMENT}` loads {', '.join(found)}: import it where a server that runs needs it")
    reference, statement = calls(REFERENCE), calls(STATEMENT)
    ratio = statement / reference
    print(
        f"`{STATEMENT}` makes {statement:,} calls, `{REFERENCE}` {reference:,}: "
        f"{ratio:.2f} times the reference, at most {LIMIT}"
    )
    if ratio > LIMIT:
        sys.exit(f"`{STATEMENT}` became slower: see `python -X importtime -c '{STATEMENT}'`")


if __name__ == "__main__":
    main()
