"""The release before this one, taken from the repository's history."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PREDECESSOR: Final = "e55df36c6394cdfbdf586cba0e3cbccb69505297"
"""The commit whose records this one must read, and which must be able to run beside it. A release moves it to the
release before; it is named here and nowhere else."""


@pytest.fixture(scope="module")
def predecessor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree with the predecessor's code; skipped only where the repository does not have it."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed: the predecessor's code is in the repository's history")
    archive = subprocess.run(
        [git, "archive", "--format=tar", PREDECESSOR, "src", "tests", "tools"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        pytest.skip(
            f"{PREDECESSOR[:7]}, the predecessor, is not here: no repository, or one without its history"
        )
    tree = tmp_path_factory.mktemp("predecessor")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(tree, filter="data")
    return tree
