"""Programs of the system that tests start; `tools/install-system.sh` installs them."""

import shutil

import pytest


def program(name: str) -> str:
    """Return where a program is; a test without it is skipped, which `make test` takes for a failure."""
    # Debian puts haproxy and nginx in /usr/sbin, which an ordinary user's PATH may lack.
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed; tools/install-system.sh installs it")
    return found
