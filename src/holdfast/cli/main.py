"""The `holdfast` command. An error names the fault, its place and a valid form; a usage error has no traceback.

Most of the time until the first answer is imports, so a command imports only the modules that it uses.
"""

import os
import sys
from typing import Final

from holdfast.cli import collector
from holdfast.errors import ConfigError

_STOPPED: Final = 130
"""The exit status after Ctrl+C."""


def main() -> None:
    """Run the command line."""
    collector.pause()
    try:
        from holdfast.cli.quick import read  # noqa: PLC0415 - imported only by this command

        asked = read(sys.argv[1:], os.environ)
        if asked is None:
            from holdfast.cli.whole import app  # noqa: PLC0415 - imported only by this command

            app()
        else:
            from holdfast.cli.asked import run  # noqa: PLC0415 - imported only by this command

            sys.exit(run(asked))
    except ConfigError as error:
        from holdfast.cli.refusing import refuse  # noqa: PLC0415 - imported only by this command

        refuse(error, sys.argv[1:])
    except KeyboardInterrupt:
        # While modules are imported: a command that runs handles it itself.
        sys.exit(_STOPPED)
