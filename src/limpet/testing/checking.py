"""`limpet check` as a function for tests of a running server, ours or another."""

from collections.abc import Mapping, Sequence
from typing import Any

from limpet.checking.report import Report
from limpet.checking.run import PATIENCE, CheckPlan
from limpet.checking.run import check as run


async def check(
    url: str,
    *,
    tool: str = "",
    arguments: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
    slow: bool = False,
    timeout: float = PATIENCE,
) -> Report:
    """Probe the server at a URL as `limpet check` does, and return the report: `assert report.passed, str(report)`.

    Only `tool` is called; without it, a tool that is annotated read-only; without such a tool, none. `only` names the
    probes to run. The sessions that the probes open are deleted.

    Raises:
        ConfigError: the URL, a header, the tool or the name of a probe is not valid.
    """
    return await run(
        url,
        CheckPlan(
            tool=tool,
            arguments=arguments,
            headers=headers or {},
            only=tuple(only),
            slow=slow,
            patience=timeout,
        ),
    )
