"""`python -m bench`: Holdfast's echo, on a session and without, beside the bare uvicorn application, in one run."""

import argparse
import statistics

from bench.contest import HOLDFAST, LIMIT, MODERN, contest, cpu_ratio, ratio


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="length of one slice")
    options = parser.parse_args()
    slices = contest(
        [LIMIT, HOLDFAST, MODERN],
        connections=options.connections,
        rounds=options.rounds,
        seconds=options.seconds,
    )
    print(f"echo, {options.connections} connections, one core, every answer verified")
    for name, measured in slices.items():
        rate = statistics.median(slice_.per_second for slice_ in measured)
        cpu = statistics.median(slice_.cpu_us for slice_ in measured)
        p50, p99 = (statistics.median(getattr(s, field) for s in measured) for field in ("p50_us", "p99_us"))
        print(
            f"  {name:14s} {rate:9,.0f} requests/s  {cpu:6.1f} µs CPU each  p50 {p50:6,.0f} µs  p99 {p99:6,.0f} µs"
        )
    for ours, theirs in (("holdfast", "bare uvicorn"), ("holdfast 2026", "holdfast")):
        print(
            f"  {ours} / {theirs}: {ratio(slices, ours, theirs):.2f} by requests/s, "
            f"{cpu_ratio(slices, ours, theirs):.2f} by best CPU time per request"
        )


if __name__ == "__main__":
    main()
