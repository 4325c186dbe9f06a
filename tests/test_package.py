"""The package and its locks: metadata that is true, extras, and lock files that fit pyproject.toml and name no address."""

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from trove_classifiers import classifiers

import limpet
from tools import release_facts

ROOT: Final = Path(__file__).parents[1]
LOCKS: Final = ROOT / "tools" / "locks"
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
METADATA: Final[dict[str, Any]] = PROJECT["project"]
EXTRAS: Final[dict[str, list[str]]] = METADATA["optional-dependencies"]
PINNED: Final = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+?))? \\$", re.MULTILINE
)
ADDRESS: Final = re.compile(r"https?://|file:|--(?:extra-)?index-url|--find-links|\bresolved\b")
PYTHON_LOCKS: Final = sorted(LOCKS.glob("*.txt"))
NPM_LOCKS: Final = sorted(LOCKS.glob("npm/*/package-lock.json"))


@cache
def locked(name: str) -> dict[str, set[str]]:
    """Return the versions of each package of a lock file; several, if they depend on Python or on the system."""
    found: dict[str, set[str]] = {}
    for match in PINNED.finditer((LOCKS / f"{name}.txt").read_text()):
        found.setdefault(canonicalize_name(match["name"]), set()).add(match["version"])
    return found


def group(name: str) -> list[str]:
    """Return the requirements of a group, with those of the groups that it includes."""
    found: list[str] = []
    for entry in PROJECT["dependency-groups"][name]:
        found += [entry] if isinstance(entry, str) else group(entry["include-group"])
    return found


def unlocked(requirements: list[str], lock: str) -> list[str]:
    """Return the requirements that a lock file does not meet."""
    versions = locked(lock)
    missing = []
    for text in requirements:
        wanted = Requirement(text)
        found = versions.get(canonicalize_name(wanted.name), set())
        if not found or not all(wanted.specifier.contains(Version(one), prereleases=True) for one in found):
            missing.append(text)
    return missing


def test_the_extra_all_has_every_extra() -> None:
    [everything] = [Requirement(text) for text in EXTRAS["all"]]
    assert everything.name == METADATA["name"]
    assert everything.extras == EXTRAS.keys() - {"all"}


def test_the_classifiers_exist_and_claim_only_what_is_tested() -> None:
    claimed: list[str] = METADATA["classifiers"]
    assert set(claimed) <= classifiers
    assert [one for one in claimed if one.startswith("Operating System")] == [
        "Operating System :: POSIX :: Linux"
    ]
    oldest = METADATA["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in claimed


def test_the_project_has_its_addresses() -> None:
    addresses: dict[str, str] = METADATA["urls"]
    assert {"Documentation", "Source", "Changelog", "Issues", "Security"} <= addresses.keys()
    assert all(address.startswith(addresses["Source"]) for address in addresses.values())


def test_the_lock_files_meet_pyproject() -> None:
    """`make lock` writes them again after a change of pyproject.toml."""
    ours: list[str] = METADATA["dependencies"]
    optional = [text for name, texts in EXTRAS.items() if name != "all" for text in texts]
    assert unlocked([*ours, *optional, *group("dev")], "dev") == []
    assert unlocked([*ours, *group("build")], "runtime") == []
    for peer in ("mcp1", "mcp2", "fastmcp"):
        assert unlocked(ours, peer) == [], peer


def test_a_requirement_that_is_not_locked_is_found() -> None:
    assert unlocked(["no-such-package", "pytest>=1000", "pytest"], "dev") == [
        "no-such-package",
        "pytest>=1000",
    ]


def test_what_make_serve_installs_is_what_the_tests_use() -> None:
    tested = locked("dev")
    assert {
        name: versions for name, versions in locked("runtime").items() if tested.get(name) != versions
    } == {}


@pytest.mark.parametrize("path", PYTHON_LOCKS, ids=lambda path: path.stem)
def test_a_lock_of_python_packages_has_hashes_and_no_addresses(path: Path) -> None:
    text = path.read_text()
    assert not ADDRESS.search(text)
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert entries
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("path", NPM_LOCKS, ids=lambda path: path.parent.name)
def test_a_lock_of_npm_packages_has_hashes_and_no_addresses(path: Path) -> None:
    packages: dict[str, dict[str, Any]] = json.loads(path.read_text())["packages"]
    installed = {name: one for name, one in packages.items() if name}
    assert installed
    assert [name for name, one in installed.items() if "resolved" in one or "integrity" not in one] == []


def test_the_locks_have_the_versions_of_versions_env() -> None:
    """`make lock` writes them again after a change of tools/versions.env."""
    versions = dict(re.findall(r"^(\w+)=(\S+)$", (ROOT / "tools" / "versions.env").read_text(), re.MULTILINE))
    peers = {
        "MCP1": ("mcp1", "mcp"),
        "MCP2": ("mcp2", "mcp"),
        "FASTMCP": ("fastmcp", "fastmcp"),
        "MCP_PROXY": ("mcp-proxy",) * 2,
    }
    for variable, (lock, name) in peers.items():
        assert locked(lock)[name] == {versions.pop(variable)}
    asked = [json.loads((path.parent / "package.json").read_text()) for path in NPM_LOCKS]
    wanted = [
        one
        for each in asked
        for one in {**each.get("dependencies", {}), **each.get("optionalDependencies", {})}.values()
    ]
    assert {one.rpartition("@")[2] for one in wanted} == set(versions.values())


# The facts of a release


def release(
    root: Path, *, version: str = "1.2.3", heading: str = "## 1.2.3 - 2027-01-31", host: str = "code.test"
) -> Path:
    """Write the files that a release is made of."""
    package = root / "src" / "thing"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f'"""A thing."""\n\n__version__ = "{version}"\n')
    (root / "pyproject.toml").write_text(
        f'[project]\nname = "thing"\n[project.urls]\nSource = "https://{host}/thing"\n'
    )
    (root / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## Unreleased\n\n{heading}\n\n## 1.2.2 - 2026-12-31\n"
    )
    return root


def test_a_release_agrees_with_its_tag_and_its_changelog(tmp_path: Path) -> None:
    assert release_facts.disagreements(release(tmp_path), "v1.2.3") == []
    assert release_facts.placeholders(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "tag", "said"),
    [
        ({}, "v1.2.4", "the tag v1.2.4 is not v1.2.3"),
        ({"version": "1.2.4"}, "v1.2.4", "the newest release of CHANGELOG.md is not 1.2.4"),
        ({"heading": "## 1.2.3"}, "v1.2.3", "the newest release of CHANGELOG.md is not 1.2.3"),
        ({"host": "example.com"}, "v1.2.3", "Source of pyproject.toml is a placeholder"),
    ],
)
def test_what_disagrees_with_a_release_is_named(
    tmp_path: Path, files: dict[str, str], tag: str, said: str
) -> None:
    root = release(tmp_path, **files)
    [found] = release_facts.disagreements(root, tag) + release_facts.placeholders(root)
    assert found.startswith(said)


def test_every_file_with_the_version_has_the_version_of_the_package() -> None:
    assert release_facts.version_of(ROOT) == limpet.__version__
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "Chart.yaml").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    starter = json.loads((ROOT / "packages" / "npm" / "package.json").read_text())
    versions = {chart["version"], chart["appVersion"], citation["version"], starter["version"]}
    assert versions == {limpet.__version__}
    assert citation["repository-code"] == METADATA["urls"]["Source"] == starter["homepage"]


# The changelog

KINDS: Final = {"Breaking", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
LONGEST: Final = 300
"""Characters of a point: what a reader can do, or must do, and a link. The rest is in the commit."""


def wordy(changelog: str) -> list[str]:
    """Return the points and headings under Unreleased that are not written for readers."""
    unreleased = changelog.partition("\n## Unreleased\n")[2].partition("\n## ")[0]
    headings = re.findall(r"^###+ (.+)$", unreleased, re.MULTILINE)
    points = [" ".join(point.split()) for point in re.split(r"^- |^#.*$", unreleased, flags=re.MULTILINE)]
    return [one for one in headings if one not in KINDS] + [one for one in points if len(one) > LONGEST]


def test_the_changelog_is_written_for_readers() -> None:
    assert wordy((ROOT / "CHANGELOG.md").read_text()) == []


def test_a_long_point_and_an_unknown_heading_are_found() -> None:
    long = "word " * LONGEST
    text = f"# Changelog\n\n## Unreleased\n\n### Added\n\n- short\n- {long}\n\n### Improved\n\n## 1.2.2 - 2026-12-31\n\n- {long}\n"
    assert wordy(text) == ["Improved", long.strip()]
