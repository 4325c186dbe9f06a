"""A dry run of the release: `make release-check`. Everything that the release workflow and a first user do, without an upload.

1. Tag a clone of this commit, and compare the tag with the version and the changelog.
2. Build the source archive and the wheel twice in it, compare, install the wheel alone and use it; uvx too.
3. List the packages that it installs (SBOM).
4. Run the steps of the image.
5. Follow the tutorial from its first step to its last, with the files of 2 in an empty environment.
6. Upgrade under load: two replicas of the wheel of the commit before are replaced one by one, and one goes back.

What is not committed is not checked. What only a maintainer can do is listed at the end.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.docs.terminal import Terminal
from tests.docs.test_examples import CONSOLE, FILE, blocks
from tools import release_facts

ROOT: Final = Path(__file__).parents[1]
PYTHON: Final = ROOT / ".venv" / "bin" / "python"


def run(*words: object, cwd: Path = ROOT) -> None:
    """Run a program; its output is ours, and its failure too."""
    subprocess.run([*map(str, words)], cwd=cwd, check=True)


class Release:
    """The clone, and what was made of it."""

    def __init__(self, room: Path, previous: str) -> None:
        self._room = room
        self.clone: Path = room / "clone"
        self._previous = previous
        self.left: list[str] = []
        """What keeps this commit from being released."""

    @property
    def wheel(self) -> Path:
        [found] = (self.clone / "build" / "wheel" / "dist").glob("*.whl")
        return found

    def tag(self) -> None:
        """Clone this commit, tag the clone, and compare."""
        run("git", "clone", "--quiet", "--no-local", f"file://{ROOT}", self.clone)
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        run("git", "checkout", "--quiet", "--detach", commit.stdout.strip(), cwd=self.clone)
        tag = f"v{release_facts.version_of(self.clone)}"
        run(
            "git",
            "-c",
            "tag.gpgSign=false",
            "tag",
            "--annotate",
            "--force",
            tag,
            "--message",
            tag,
            cwd=self.clone,
        )
        # The tools that build are those of the checkout.
        (self.clone / ".venv").symlink_to(ROOT / ".venv")
        self.left += release_facts.disagreements(self.clone, tag) + release_facts.placeholders(self.clone)
        print(f"release: {tag} is {commit.stdout[:12]}, in a clone")

    def build(self) -> None:
        """Build twice, install, use."""
        run("tools/wheel_test.sh", "install", PYTHON, cwd=self.clone)
        run("tools/wheel_test.sh", "try", cwd=self.clone)
        for path in sorted(self.wheel.parent.iterdir()):
            print(f"release: sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")

    def list_packages(self) -> None:
        """Write the SBOM."""
        run("tools/sbom.sh", "build/wheel/limpet.cdx.json", cwd=self.clone)

    def image(self) -> None:
        """Run the steps of the Dockerfile in a directory."""
        run(PYTHON, "-m", "tools.image_steps", self._room / "image", cwd=self.clone)

    def tutorial(self) -> None:
        """Follow the page, with the wheel in an empty environment."""
        home, folder = self._room / "environment", self._room / "weather"
        folder.mkdir()
        run(PYTHON, "-m", "venv", home)
        run(
            home / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            self.wheel,
            "pytest",
        )
        with closing(Terminal(folder, home / "bin")) as terminal:
            for block in blocks(ROOT / "docs" / "tutorial.md"):
                if file := FILE.fullmatch(block.info):
                    (folder / file[1]).write_text(block.text)
                elif block.info in CONSOLE:
                    terminal.show(block.info, block.text)
        print("release: the tutorial works from its start to its end")

    def upgrade(self) -> None:
        """Replace replicas of the wheel of the commit before, under load."""
        old, new = self._room / "old", self._room / "new"
        commit = f"{self._previous}^{{commit}}"
        archive = self._room / "previous.tar"
        run("git", "archive", "--output", archive, commit, cwd=self.clone)
        self._unpacked(archive, self._room / "previous")
        run(
            PYTHON,
            "-m",
            "build",
            "--no-isolation",
            "--wheel",
            "--outdir",
            self._room / "dist",
            ".",
            cwd=self._room / "previous",
        )
        [wheel] = (self._room / "dist").glob("*.whl")
        for tree, built, source in ((old, wheel, self._room / "previous"), (new, self.wheel, self.clone)):
            # The replicas on trial are tests of their release; the package comes from its wheel.
            with zipfile.ZipFile(built) as packed:
                packed.extractall(tree / "src")
            for folder in ("tests", "tools"):
                (tree / folder).symlink_to(source / folder)
        run(PYTHON, "-m", "tests.upgrade", old, new, cwd=self.clone)

    @staticmethod
    def _unpacked(archive: Path, target: Path) -> None:
        target.mkdir()
        run("tar", "--extract", "--file", archive, "--directory", target)


def main() -> None:
    """Do every step, or those that are named; fail with the first that fails."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--previous", default="HEAD~1", help="the commit whose wheel is upgraded. Default: the one before"
    )
    made.add_argument("--without", nargs="*", default=[], metavar="STEP", help="leave these steps out")
    given = made.parse_args()
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, check=True).stdout:
        print(
            "release: the checkout has changes that are not committed; they are not checked", file=sys.stderr
        )
    with tempfile.TemporaryDirectory(prefix="limpet-release-") as room:
        release = Release(Path(room), given.previous)
        steps: list[Callable[[], None]] = [
            release.tag, release.build, release.list_packages, release.image, release.tutorial, release.upgrade,
        ]  # fmt: skip
        for step in steps:
            if step.__name__ not in given.without:
                print(f"\n== {step.__name__}", flush=True)
                step()
        print("\nrelease: every step works.")
        for line in release.left:
            print(f"release: before it is published: {line}")


if __name__ == "__main__":
    main()
