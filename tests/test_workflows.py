"""The files of the repository's host: workflows, actions and updates are valid, and give no more rights than they need."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[1]
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
USED: Final = re.compile(r"uses: (?P<action>[\w./-]+)@(?P<hash>\S+)(?: # (?P<version>\S+))?")
WRONG: Final = """
on: push
permissions: {contents: read, everything: write}
jobs:
  a:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v4
      - run: echo ${{ github.event.issue.title }} ${{ nothing.x }}
"""


def faults(*files: Path) -> list[str]:
    """Return the faults that GitHub's parser finds."""
    node, packages = ROOT / ".node" / "bin" / "node", ROOT / ".node" / "workflows"
    if not packages.exists():
        pytest.skip("the parser of workflow files is not installed: make node")
    program = [node, ROOT / "tests" / "workflows.mjs", packages, *files]
    done = subprocess.run([*map(str, program)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def findings(*paths: Path) -> str:
    """Return the dangers that zizmor finds, offline."""
    program = [
        str(Path(sys.executable).parent / "zizmor"),
        "--offline",
        "--persona=pedantic",
        "--strict-collection",
    ]
    done = subprocess.run(
        [*program, "--format=plain", "--color=never", "--quiet", *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_github_accepts_the_workflows() -> None:
    assert len(WORKFLOWS) > 2
    assert faults(*WORKFLOWS) == []


def test_the_workflows_are_safe() -> None:
    assert findings(ROOT / ".github", ROOT / "check") == ""


def test_a_wrong_workflow_is_found(tmp_path: Path) -> None:
    path = tmp_path / ".github" / "workflows" / "wrong.yml"
    path.parent.mkdir(parents=True)
    path.write_text(WRONG)
    found = "\n".join(faults(path))
    assert "Unexpected value 'everything'" in found
    assert "Unrecognized named-value: 'nothing'" in found
    path.write_text(WRONG.replace(", everything: write", "").replace(" ${{ nothing.x }}", ""))
    found = findings(tmp_path)
    assert "error[unpinned-uses]" in found
    assert "error[template-injection]" in found


def test_each_action_has_one_hash_and_the_version_of_it() -> None:
    seen: dict[str, set[tuple[str, str | None]]] = {}
    for path in [*WORKFLOWS, *ROOT.glob("*/action.yml")]:
        for used in USED.finditer(path.read_text()):
            # The actions of one repository are released together.
            repository = "/".join(used["action"].split("/")[:2])
            seen.setdefault(repository, set()).add((used["hash"], used["version"]))
    assert len(seen) > 5
    for action, versions in seen.items():
        [(digest, version)] = versions
        assert re.fullmatch(r"[0-9a-f]{40}", digest), action
        assert re.fullmatch(r"v\d+\.\d+\.\d+", version or ""), action


def test_the_matrix_has_every_python_that_the_package_claims() -> None:
    ci: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    matrix: list[str] = ci["jobs"]["pythons"]["strategy"]["matrix"]["python"]
    assert matrix == ["3.11", "3.12", "3.13", "3.14"]
    claimed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = {one.rpartition(" ")[2] for one in claimed if re.search(r":: 3\.\d+$", one)}
    assert versions <= set(matrix)


def test_a_system_that_has_not_been_seen_to_work_is_marked() -> None:
    """A run that passes there is what takes the mark away, together with the classifier."""
    ci: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    systems = ci["jobs"]["systems"]
    assert "untested" in systems["name"]
    assert systems["continue-on-error"] is True
