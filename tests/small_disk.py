"""A disk that is full soon, for tests of stores."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """Mount a disk of this size (`1m`) in a new directory."""
    with tempfile.TemporaryDirectory(prefix="limpet-disk-") as directory:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("mounting a small disk is not allowed here")
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", "-l", directory], check=True)


def fill(ballast: Path) -> None:
    """Write a file until the disk is full."""
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
