"""The pages whose requirements are answered, and how they are read from clones of the specification."""

import subprocess
from pathlib import Path
from typing import Final

from tools.requirements.catalog import Known, Sentences
from tools.requirements.sentences import Sentence, requirements

SESSIONS: Final = (
    "basic/transports",
    "basic/lifecycle",
    "basic/utilities/cancellation",
    "basic/authorization",
)
PAGES: Final[dict[str, tuple[str, ...]]] = {
    "2025-11-25": (*SESSIONS, "basic/utilities/tasks"),
    "2025-06-18": SESSIONS,
    "2025-03-26": SESSIONS,
    "2026-07-28": (
        "basic/index",
        "basic/transports/index",
        "basic/transports/stdio",
        "basic/transports/streamable-http",
        "basic/versioning",
        "server/discover",
        "basic/patterns/index",
        "basic/patterns/cancellation",
        "basic/patterns/mrtr",
        "basic/patterns/subscriptions",
        "basic/authorization/index",
        "basic/authorization/authorization-server-discovery",
        "basic/authorization/client-registration",
        "basic/authorization/security-considerations",
    ),
}
"""By revision: its pages. `versioning`, `discover` and `basic/index` are what 2026-07-28 has instead of a lifecycle."""
TASKS: Final = "tasks extension"
"""The page of the tasks extension, which has a repository of its own."""


def read(specification: Path, tasks: Path) -> dict[str, list[Sentence]]:
    """Return the requirements of every page from a clone of the specification and one of the tasks extension."""
    found = {
        f"{revision}/{page}": _requirements(specification, f"docs/specification/{revision}/{page}.mdx")
        for revision, pages in PAGES.items()
        for page in pages
    }
    return {**found, TASKS: _requirements(tasks, "specification/draft/tasks.md")}


def known(specification: Path, tasks: Path) -> Sentences:
    """Return the hashes of every page, as they are committed."""
    pages = {
        page: [Known(one.hash, one.level, one.section) for one in sentences]
        for page, sentences in read(specification, tasks).items()
    }
    commits = {
        name: _git(clone, "rev-parse", "HEAD").strip()
        for name, clone in (("modelcontextprotocol", specification), ("ext-tasks", tasks))
    }
    return Sentences(commits, pages)


def _requirements(clone: Path, path: str) -> list[Sentence]:
    return list(requirements(_git(clone, "show", f"HEAD:{path}")))


def _git(clone: Path, *words: str) -> str:
    """Return the output of git: a clone without a work tree will do."""
    return subprocess.run(
        ["git", "-C", str(clone), *words], capture_output=True, text=True, check=True
    ).stdout
