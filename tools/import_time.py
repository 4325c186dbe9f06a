"""Check that `from holdfast import Server` is quick: the best of twenty fresh processes within the limit.

Run it with the interpreter of an environment that has only the wheel.
"""

import subprocess
import sys
import time

LIMIT = 0.200
HEAVY = ("pydantic", "httptools", "typer", "rich")
STATEMENT = "from holdfast import Server"
GUARD = f"import sys; {STATEMENT}; print(*[name for name in {HEAVY!r} if name in sys.modules])"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def seconds(code: str) -> float:
    began = time.perf_counter()
    run(code)
    return time.perf_counter() - began


def main() -> None:
    if loaded := run(GUARD).split():
        sys.exit(f"`{STATEMENT}` loads {', '.join(loaded)}: import it where it is used")
    best = min(seconds(STATEMENT) for _ in range(20))
    print(f"wheel: `{STATEMENT}` takes {best * 1000:.0f} ms, process included")
    if best > LIMIT:
        sys.exit(f"the limit is {LIMIT * 1000:.0f} ms")


if __name__ == "__main__":
    main()
