"""The report of a check: one row for each probe, with a verdict."""

from typing import Literal

from msgspec import Struct

Verdict = Literal["pass", "fail", "not applicable"]


class Row(Struct, frozen=True, kw_only=True):
    """The result of one probe."""

    probe: str
    title: str
    verdict: Verdict
    happened: str
    """What the server did."""
    specification: str
    """The revision, the section and the rule."""
    remedy: str
    """How to fix a failure."""
    seconds: float
    finished: bool = True
    """False if the probe could not come to a verdict: time was up, the server refused for its load, or the check
    failed."""


class Report(Struct, frozen=True, kw_only=True):
    """The result of a whole check."""

    url: str
    server: str
    """Name and version of the server's software, as it says."""
    versions: tuple[str, ...]
    """The revisions of the protocol that it speaks, of those that were tried."""
    tool: str
    """The tool that was called; empty if no tool was allowed."""
    seconds: float
    rows: tuple[Row, ...]

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows with the verdict fail."""
        return tuple(row for row in self.rows if row.verdict == "fail")

    @property
    def finished(self) -> bool:
        """False if most probes did not finish: then the report says little about the server."""
        return 2 * sum(not row.finished for row in self.rows) <= len(self.rows)

    @property
    def passed(self) -> bool:
        """True if no probe failed, and most of them finished."""
        return self.finished and not self.failures

    def row(self, probe: str) -> Row:
        """Return the row of a probe by its name.

        Raises:
            KeyError: no probe of this name was run.
        """
        for row in self.rows:
            if row.probe == probe:
                return row
        raise KeyError(probe)

    def __str__(self) -> str:
        lines = [f"{row.verdict}: {row.title}: {row.happened}" for row in self.rows]
        return "\n".join([f"{self.url} ({self.server})", *lines])
