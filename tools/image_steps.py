"""Run the steps of the first stage of the Dockerfile in a directory, for machines without a container engine.

`python -m tools.image_steps DIRECTORY`: COPY copies from the repository, RUN runs with a fresh Python, and /opt/limpet is a
folder of the directory. Then the server of the image answers, under the environment of its second stage.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PLACE: Final = "/opt/limpet"


def steps(stage: str) -> list[tuple[str, str]]:
    """Return the instructions of a stage, with their words in one line."""
    text = (ROOT / "Dockerfile").read_text()
    [found] = re.findall(rf"^FROM \S+ AS {stage}\n(.*?)(?=^FROM|\Z)", text, re.MULTILINE | re.DOTALL)
    whole = re.sub(r"^#.*\n", "", found, flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (name, words.strip())
        for name, _, words in (line.partition(" ") for line in whole.splitlines() if line)
    ]


def build(room: Path) -> Path:
    """Run the stage `build`; return the environment that it makes."""
    place, python = room / "opt", room / "python"
    source = room / "src"
    source.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", python], check=True)
    env = {**os.environ, "PATH": f"{python}/bin:{os.environ['PATH']}", "PIP_QUIET": "1"}
    for name, words in steps("build"):
        if name == "COPY":
            *copied, target = words.split()
            for one in copied:
                _copy(ROOT / one, source / target, is_folder=target.endswith("/") or target == ".")
        elif name == "RUN":
            line = words.replace(PLACE, str(place))
            subprocess.run(["bash", "-ec", line], cwd=source, env=env, check=True)
    return place


def _copy(origin: Path, target: Path, *, is_folder: bool) -> None:
    if origin.is_dir():
        shutil.copytree(origin, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        return
    target = target / origin.name if is_folder else target
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(origin, target)


def main() -> None:
    """Build, and let the result answer with the entry point of the image."""
    room = Path(sys.argv[1]).resolve()
    place = build(room)
    [entry] = [words for name, words in steps("base") if name == "ENTRYPOINT"]
    program = place / "bin" / entry.strip('[]"')
    done = subprocess.run(
        [program, "--version"], env={}, cwd=room, capture_output=True, text=True, check=True
    )
    packages = sorted(
        path.name.partition("-")[0] for path in place.glob("lib/python*/site-packages/*.dist-info")
    )
    print(f"image: {done.stdout.strip()}, with {len(packages)} packages: {', '.join(packages)}")


if __name__ == "__main__":
    main()
