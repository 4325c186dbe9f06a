"""Options given by keyword, against the TypedDict that names them: type checkers look at those, Python does not."""

import difflib
from collections.abc import Mapping


def check_options(options: Mapping[str, object], kind: type, what: str) -> None:
    """Refuse a misspelt option, which would otherwise be passed over.

    Raises:
        TypeError: there is no such option; names the nearest.
    """
    known = kind.__annotations__
    for name in options.keys() - known.keys():
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise TypeError(f"{what} has no option {name!r}; {hint}")
