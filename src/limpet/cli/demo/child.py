"""A server process of the demo.

It ends when its standard input ends: no process outlives the demo, however the demo ends.

python -m limpet.cli.demo.child serve TARGET …   as `limpet serve`
python -m limpet.cli.demo.child mcp              the same tools, by the official SDK
"""

import os
import sys
import threading


def main() -> None:
    """Serve until standard input ends."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    if sys.argv[1] == "mcp":
        from limpet.cli.demo._of_mcp import serve  # noqa: PLC0415 - the SDK may be absent

        serve()
    else:
        from limpet.cli.main import main as limpet  # noqa: PLC0415 - imported only by this command

        limpet()


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
