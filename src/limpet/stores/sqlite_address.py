"""The file that a `sqlite:` URL names. Not in the store's package: reading an address does not load sqlite3.

`sqlite:///store.db` is relative to the working directory, `sqlite:////var/lib/app/store.db` absolute, as elsewhere in
Python. Without an authority (`sqlite:store.db`, `sqlite:/var/lib/app/store.db`) the path stands as it is. The path is
made absolute when it is read: code that changes the working directory later must not change the file.
`?synchronous=full` is the only option. Each namespace other than the default one has its own file beside it.
"""

import hashlib
import re
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from msgspec import Struct

from limpet.errors import ConfigError

Synchronous = Literal["normal", "full"]
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Address(Struct, frozen=True):
    """Where a store is, and how it is kept."""

    path: Path
    synchronous: Synchronous = "normal"


def parse(url: str, namespace: str = "default") -> Address:
    """Read a URL.

    Raises:
        ConfigError: it names a host, no file, or an option that does not exist.
    """
    place, _, query = url.partition(":")[2].partition("?")
    path = unquote(place.removeprefix("///"))
    if not path.strip("/") or path.endswith("/") or path.startswith("//") or "#" in url:
        raise ConfigError(
            f"{url!r} names no file: write sqlite:///relative.db or sqlite:////absolute/path.db, and %23 for #"
        )
    return Address(_of(Path(path).absolute(), namespace), _synchronous(url, query))


def _of(path: Path, namespace: str) -> Path:
    if namespace == "default":
        return path
    # A name that is no file name is replaced by its hash: two namespaces never share a file.
    name = namespace if _PLAIN.fullmatch(namespace) else hashlib.sha256(namespace.encode()).hexdigest()
    return path.with_name(f"{path.stem}.{name}{path.suffix}")


def _synchronous(url: str, query: str) -> Synchronous:
    options: dict[str, Synchronous] = {
        "": "normal",
        "synchronous=normal": "normal",
        "synchronous=full": "full",
    }
    if query not in options:
        raise ConfigError(
            f"{url!r}: the only option of an SQLite store is synchronous=normal or synchronous=full"
        )
    return options[query]
