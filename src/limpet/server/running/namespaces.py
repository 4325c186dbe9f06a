"""The namespace of a server's records in a store."""

import hashlib
import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")


def namespace_of(name: str) -> str:
    """Return the namespace of a server's records: its name, or its valid characters with a hash."""
    if _PLAIN.fullmatch(name):
        return name
    return f"{_OTHER.sub('-', name)[:48]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def distinct_namespace(name: str, whole: str) -> str:
    """Return the namespace of a server with a short name, and a description that may hold a secret."""
    return namespace_of(f"{name[:48]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}")
