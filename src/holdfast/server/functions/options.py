"""Options by keyword: they override settings, or are checked against the TypedDict that lists them."""

import difflib
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from holdfast.config import Eras, Settings
from holdfast.core.eras import with_eras


def overlaid(
    settings: Settings, eras: Eras | None, eras_by_client: Mapping[str, Eras] | None, **given: Any
) -> Settings:
    """Return the settings with these members replaced; None keeps the member of the settings.

    Raises:
        ConfigError: one of them is invalid.
    """
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    return with_eras(settings, eras, eras_by_client)


def check_options(options: Mapping[str, object], kind: type, what: str) -> None:
    """Refuse an unknown option, which would otherwise be ignored.

    Raises:
        TypeError: the option is unknown; the message has the nearest name.
    """
    known = kind.__annotations__
    for name in options.keys() - known.keys():
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise TypeError(f"{what} has no option {name!r}; {hint}")
