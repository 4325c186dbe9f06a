"""The file that a `sqlite:` URL names.

`sqlite:///var/lib/app/store.db` is an absolute path, `sqlite:store.db` a relative one, as in `file:` URLs.
`?synchronous=full` is the one option. A namespace other than the default one has a file of its own beside it.
"""

import hashlib
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from holdfast.errors import ConfigError
from holdfast.stores.sqlite.schema import Synchronous

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Address(Struct, frozen=True):
    """Where a store is, and how it is kept."""

    path: Path
    synchronous: Synchronous = "normal"


def parse(url: str, namespace: str = "default") -> Address:
    """Read a URL.

    Raises:
        ConfigError: it names a host, no path, or an option that does not exist.
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or path in {"", "/"}:
        raise ConfigError(f"{url!r} names no file: write sqlite:///absolute/path.db or sqlite:relative.db")
    return Address(_of(Path(path), namespace), _synchronous(url, parts.query))


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
