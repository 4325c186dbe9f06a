"""What must agree before a release: the tag, the version, the changelog, and addresses that exist.

`python -m tools.release_facts --tag v1.2.3 --published` is a step of the release workflow; `make release-check` shows the
same facts before there is a tag.
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PLACEHOLDER: Final = "example.com"
_VERSION: Final = re.compile(r'^__version__(?:: \w+(?:\[\w+\])?)? = "(?P<version>[^"]+)"$', re.MULTILINE)
_HEADING: Final = re.compile(r"^## (?P<version>\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", re.MULTILINE)


def version_of(root: Path) -> str:
    """Return the version of the package, from the one place that has it."""
    name = tomllib.loads((root / "pyproject.toml").read_text())["project"]["name"]
    found = _VERSION.search((root / "src" / name / "__init__.py").read_text())
    if found is None:
        raise SystemExit('release: the package has no line `__version__ = "…"`')
    return found["version"]


def disagreements(root: Path, tag: str | None) -> list[str]:
    """Return the facts that do not agree with the version."""
    version, found = version_of(root), []
    if tag is not None and tag != f"v{version}":
        found.append(f"the tag {tag} is not v{version}, the version of the package")
    newest = _HEADING.search((root / "CHANGELOG.md").read_text())
    if newest is None or newest["version"] != version:
        found.append(
            f"the newest release of CHANGELOG.md is not {version}: write `## {version} - <date>` below Unreleased"
        )
    return found


def placeholders(root: Path) -> list[str]:
    """Return the addresses of the package that do not exist yet."""
    addresses: dict[str, str] = tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]
    return [
        f"{name} of pyproject.toml is a placeholder: {address}"
        for name, address in addresses.items()
        if PLACEHOLDER in address
    ]


def main() -> None:
    """Write what is wrong, and end with 1 if anything is."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--tag", help="the tag of the release")
    made.add_argument(
        "--published", action="store_true", help="the files will be published: no placeholder may be left"
    )
    given = made.parse_args()
    found = disagreements(ROOT, given.tag) + (placeholders(ROOT) if given.published else [])
    for fault in found:
        print(f"release: {fault}", file=sys.stderr)
    if found:
        raise SystemExit(1)
    print(f"release: {version_of(ROOT)} agrees with its tag and its changelog")


if __name__ == "__main__":
    main()
