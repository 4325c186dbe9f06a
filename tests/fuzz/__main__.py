"""`python -m tests.fuzz [--target NAME] [--minutes 1] [--seed 1]`: random variants of good inputs, for each parser that sees bytes of others.

With `--atheris` the package atheris (`pip install atheris`) looks for inputs that reach new code, for one target.
"""

import argparse
import importlib
import random
import sys
import time
from typing import Any

from tests.fuzz.targets import TARGETS, Target


def changed(chance: random.Random, seeds: tuple[bytes, ...]) -> bytes:
    """Return a variant of an input: bytes are changed, repeated, taken out, or come from another input."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                data[at:at] = bytes([chance.randrange(256)])
            case 1:
                del data[at : at + chance.randint(1, 8)]
            case 2:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 3:
                data[at:at] = data[: chance.randint(0, 40)] * chance.randint(1, 4)
            case _:
                other = chance.choice(seeds)
                begin = chance.randrange(len(other) + 1)
                data[at:at] = other[begin : begin + chance.randint(1, 40)]
    return bytes(data)


def run(target: Target, seed: int, *, seconds: float = 0.0, count: int = 0) -> int:
    """Try inputs for some time, or so many; return how many."""
    chance, tried = random.Random(seed), 0
    until = time.monotonic() + seconds
    while tried < count or time.monotonic() < until:
        data = changed(chance, target.seeds)
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"the input was {data!r}")
            raise
        tried += 1
    return tried


def main() -> int:
    """Fuzz what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--atheris", action="store_true")
    arguments = parser.parse_args()
    for name in arguments.target or TARGETS:
        target = TARGETS[name]
        if arguments.atheris:
            atheris: Any = importlib.import_module("atheris")
            atheris.instrument_all()
            atheris.Setup([sys.argv[0], f"-max_total_time={arguments.minutes * 60:.0f}"], target.run)
            atheris.Fuzz()
        tried = run(target, arguments.seed, seconds=arguments.minutes * 60)
        print(f"{name}: {tried} inputs, no failure", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
