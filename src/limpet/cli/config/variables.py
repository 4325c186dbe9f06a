"""`${NAME}` in the texts of a file: the value of an environment variable."""

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from limpet.errors import ConfigError

_REFERENCE: Final = re.compile(r"\$(\$?)\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def refers(text: str) -> bool:
    """True if a text has a reference to a variable."""
    return any(not found[1] for found in _REFERENCE.finditer(text))


def expanded(value: Any, where: str, known: Mapping[str, str]) -> Any:
    """Return a value of a file with all references in its texts replaced. `known` has names besides the environment.

    `${NAME}` and `${env:NAME}` are the variable, `${NAME:-text}` is the text if the variable is not set. `$${NAME}` is
    not replaced; it becomes `${NAME}`.

    Raises:
        ConfigError: a variable is not set, or a reference has another form.
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _value(found, where, known), value)
    if isinstance(value, dict):
        return {key: expanded(inner, where, known) for key, inner in value.items()}
    if isinstance(value, list):
        return [expanded(inner, where, known) for inner in value]
    return value


def _value(found: re.Match[str], where: str, known: Mapping[str, str]) -> str:
    if found[1]:
        return found[0][1:]
    if found[2] in known:
        return known[found[2]]
    parts = _VARIABLE.fullmatch(found[2])
    if parts is None:
        raise ConfigError(
            f"{where} has {found[0][:80]}, which has no value here: use an environment variable, as in ${{NAME}}"
        )
    value = os.environ.get(parts[1], parts[2])
    if value is None:
        raise ConfigError(f"{where} needs the environment variable {parts[1]}, which is not set")
    return value
