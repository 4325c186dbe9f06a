"""The address in a `postgres:` URL: hosts, the schema, and what the driver gets. This module does not need the driver.

    postgres://user:password@host:5432,standby:5432/database?sslmode=verify-full&sslrootcert=/etc/ca.pem&schema=limpet

The parameters of libpq that the driver knows are passed on (`PASSED`), and so are its environment variables and
`.pgpass`. Three parameters are ours: `schema`, `pool` (connections of one process) and `listen` (a second URL for
wake-ups, direct to the server). Each namespace other than the default one has a schema of its own:
`<schema>_<namespace>`.
"""

import hashlib
import re
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from msgspec import Struct

from limpet.errors import ConfigError

SCHEMES: Final = ("postgres", "postgresql")
PASSED: Final = frozenset(
    ("host", "port", "user", "dbname", "database", "passfile", "password", "target_session_attrs", "service", "servicefile",
     "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "sslnegotiation", "ssl_min_protocol_version",
     "ssl_max_protocol_version", "krbsrvname", "gsslib")
)  # fmt: skip
"""Parameters for the driver. It would send any other to the server as a setting, which PgBouncer refuses."""
_OURS: Final = frozenset(("schema", "pool", "listen"))
_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST: Final = 63
"""Bytes of a name in PostgreSQL."""
POOL: Final = 8
"""Connections of one process, besides the one for wake-ups."""
_LARGEST_POOL: Final = 100


class PostgresAddress(Struct, frozen=True):
    """Where a store is."""

    url: str
    """For the driver."""
    listen: str
    """For the connection on which wake-ups arrive."""
    schema: str
    pool: int = POOL


def parse(url: str, namespace: str = "default") -> PostgresAddress:
    """Read a URL.

    Raises:
        ConfigError: it has a parameter that does not exist, or a value that is not valid. The text has no password.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ConfigError(
            f"{parts.scheme}: is not a PostgreSQL store; its URL begins with postgres:// or postgresql://"
        )
    if parts.fragment:
        raise ConfigError("the store's URL has a '#': in a password, write it as %23")
    if "://" not in url:
        raise ConfigError(
            f"the store's URL has no host: write {parts.scheme}://host/database, with two slashes"
        )
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(given)
    if len(options) < len(given):
        raise ConfigError("the store's URL has a parameter twice")
    unknown = options.keys() - PASSED - _OURS
    if unknown:
        raise ConfigError(
            f"the store's URL has parameters that do not exist: {', '.join(sorted(unknown))}; ours are {', '.join(sorted(_OURS))}"
        )
    passed = urlencode({name: value for name, value in options.items() if name in PASSED}, quote_via=quote)
    own = url.partition("?")[0] + (passed and f"?{passed}")
    listen = options.get("listen", own)
    if listen.partition("://")[0] not in SCHEMES:
        raise ConfigError(
            "listen= in the store's URL must be a postgres:// URL, with %26 for & and %3F for ?"
        )
    return PostgresAddress(own, listen, schema_of(options.get("schema", "limpet"), namespace), _pool(options))


def _pool(options: dict[str, str]) -> int:
    text = options.get("pool", str(POOL))
    if not text.isdecimal() or not 1 <= int(text) <= _LARGEST_POOL:
        raise ConfigError(f"pool= in the store's URL must be a number from 1 to {_LARGEST_POOL}")
    return int(text)


def schema_of(schema: str, namespace: str) -> str:
    """Return the schema of a namespace.

    Raises:
        ConfigError: the name of the schema is not valid.
    """
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise ConfigError(
            "schema= in the store's URL must be letters, digits and underscores, and must not begin with pg_"
        )
    if namespace == "default":
        return schema
    name = f"{schema}_{namespace}"
    if len(name) <= _LONGEST and _PLAIN.fullmatch(namespace):
        return name
    # A namespace that is no name is replaced by its hash: two namespaces never share a schema.
    return f"{schema}_{hashlib.sha256(namespace.encode()).hexdigest()[:20]}"
