"""The garbage collector while a server starts.

Modules, classes and functions live as long as the process. While they are loaded, the collector would look through
all of them again and again, an eighth of the time of the start. So it pauses, and before the first request everything
that exists is declared permanent: later collections look only at objects that were made since.
"""

import gc


def pause() -> None:
    """Collect nothing from now on."""
    gc.disable()


def go_on() -> None:
    """Collect again, without the objects that exist now."""
    gc.freeze()
    gc.enable()
