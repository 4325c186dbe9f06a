"""Which era a server speaks, by what it says to `server/discover`. Pure.

A result, or an error that only 2026-07-28 defines, is a modern server's word; anything else is
how some server of the session era answers what it does not know. Never keyed to one code.
"""

from enum import Enum
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.errors import McpError, VersionRefused
from holdfast.protocol.sessionless import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION, VERSION
from holdfast.protocol.versions import REVISIONS

MODERN_ERRORS: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})


class Verdict(Enum):
    """What a probe found."""

    MODERN = "modern"
    LEGACY = "legacy"


class Agreed(Struct, frozen=True, kw_only=True):
    """What client and server settled on."""

    version: str
    server: dict[str, Any]
    """Name and version of the server's software, as it says."""
    capabilities: dict[str, Any]
    instructions: str | None = None

    @property
    def is_modern(self) -> bool:
        """No session, and every request says who it is from."""
        return self.version not in REVISIONS


def judge_result(result: Any) -> Verdict:
    """Judge the answer to a probe: a list of versions with ours in it is a modern server's."""
    versions = result.get("supportedVersions") if isinstance(result, dict) else None
    if not isinstance(versions, list):
        return Verdict.LEGACY
    return choose(versions)


def judge_error(error: Exception) -> Verdict:
    """Judge a probe's failure.

    Raises:
        VersionRefused: a modern server, and no version in common.
        McpError: a modern server that refuses for another reason, which trying the other era cannot mend.
    """
    if not isinstance(error, McpError) or error.code not in MODERN_ERRORS:
        return Verdict.LEGACY
    if error.code != UNSUPPORTED_VERSION:
        raise error
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return choose(supported if isinstance(supported, list) else [])


def choose(supported: list[Any]) -> Verdict:
    """Choose between the versions a server offers.

    Raises:
        VersionRefused: none of them is ours.
    """
    if VERSION in supported:
        return Verdict.MODERN
    if any(version in REVISIONS for version in supported if isinstance(version, str)):
        return Verdict.LEGACY
    offered = ", ".join(str(version)[:20] for version in supported[:10]) or "nothing"
    raise VersionRefused(
        f"no protocol version in common: the server offers {offered}; we speak {VERSION}, {', '.join(REVISIONS)}"
    )


def origin(url: str) -> str:
    """Return what an era is remembered by."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()
