"""`python -m tests.attacks [--figures 256,512,1024] [--scale 1] [--only NAME]`: the memory campaign; exit 0 only if all is bounded."""

import argparse
import asyncio
import logging
import sys

from tests.attacks.campaign import MIB, attacked, rows


def main() -> int:
    """Run the campaign of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks")
    parser.add_argument("--figures", default="256,512,1024", help="MiB, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="", help="a part of the name of the attacks to run")
    parser.add_argument("--options", default=None, help="options of the server instead of --memory")
    arguments = parser.parse_args()
    options = None if arguments.options is None else arguments.options.split()
    # Refused connections are the subject, not a fault: asyncio writes a line for each write to one of them.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    is_bounded = True
    for figure in map(int, arguments.figures.split(",")):
        for row in rows():
            if arguments.only not in row.name:
                continue
            result = asyncio.run(attacked(row, figure * MIB, scale=arguments.scale, options=options))
            is_bounded &= result.is_bounded
            print(result, flush=True)
    return 0 if is_bounded else 1


if __name__ == "__main__":
    sys.exit(main())
