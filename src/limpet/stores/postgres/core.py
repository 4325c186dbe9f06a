"""The common part of all operations: the names of this process, the clock of the server, and statements by name."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from typing_extensions import override

from limpet.errors import StoreUnavailable
from limpet.stores.postgres import schema
from limpet.stores.postgres.connection import PostgresConnection, Rows
from limpet.stores.postgres.lanes import Lanes
from limpet.stores.postgres.link import Link
from limpet.stores.postgres.refusals import code_of
from limpet.stores.postgres_address import parse
from limpet.stores.shared.answers import Later
from limpet.stores.shared.server import ServerStore

_MADE_BY_ANOTHER: Final = frozenset(("23505", "42P06", "42P07", "42723", "42710"))
"""Another process has made the same schema, table or function at the same moment."""


@lru_cache(maxsize=4_096)
def hashed(principal: str) -> bytes:
    """Return the hash that stands for a principal."""
    return sha256(principal.encode()).digest()


class PostgresCore(ServerStore[str]):
    """Statements by name."""

    format = schema.FORMAT

    @override
    def _open(self) -> None:
        self._address = parse(self._url, self._namespace)
        self._schema = self._address.schema
        self._queries = schema.queries(self._schema)
        self._link = Link(self._address.url, self._observer, self._credentials)
        self._lanes = Lanes(self._link, self._address.pool, self._observer, self._prepare)

    # Statements

    async def _run(self, name: str, *arguments: Any) -> Rows:
        """Run a statement; return its rows."""
        return await self._lanes.run(self._queries[name], arguments)

    async def _one(self, name: str, *arguments: Any) -> Any:
        """Return the first column of the first row; None if there is none."""
        rows = await self._lanes.run(self._queries[name], arguments)
        return rows[0][0] if rows else None

    async def _column(self, name: str, *arguments: Any) -> list[Any]:
        """Return the first column."""
        return [row[0] for row in await self._lanes.run(self._queries[name], arguments)]

    @property
    def _told(self) -> float | None:
        """The time for a statement; None: that of the server."""
        return self._clock.told

    @property
    def _lives(self) -> str | None:
        """This incarnation, if it must have a lease."""
        return self.me if self.incarnation else None

    # The schema

    async def _prepare(self, connection: PostgresConnection) -> None:
        """Make what the schema lacks, and check its format.

        Raises:
            StoreUnavailable: this role may not, or the schema is of a later format.
        """
        for _ in range(5):
            [(has_schema, has_tables, has_functions)] = await connection.fetch(schema.look(self._schema), ())
            if has_tables:
                await self._check_format(connection)
            if has_functions:
                return
            parts = [
                "" if has_schema else f'CREATE SCHEMA "{self._schema}";',
                "" if has_tables else schema.tables(self._schema),
                schema.functions(self._schema),
            ]
            try:
                await connection.script("\n".join(parts))
            except Exception as error:
                state = code_of(error.__cause__)
                if state == "42501":
                    raise StoreUnavailable(self._no_rights(has_schema=bool(has_schema))) from error.__cause__
                if state not in _MADE_BY_ANOTHER:
                    raise
        raise Later("other processes change its schema")

    def _no_rights(self, *, has_schema: bool) -> str:
        lacks = "create tables and functions in it" if has_schema else "create it"
        return (
            f"the schema {self._schema} of the store is missing or not complete, and the role of the store's URL may not {lacks}: "
            "let a role that may run the statements of `limpet store sql`"
        )

    async def _check_format(self, connection: PostgresConnection) -> None:
        [(found,)] = await connection.fetch(schema.format_of(self._schema), ())
        if found > schema.FORMAT:
            raise StoreUnavailable(
                f"a later Limpet has written this schema (format {found}, this one knows {schema.FORMAT}): "
                "upgrade this one, or give it another namespace or schema"
            )


def texts(names: Sequence[str]) -> list[bytes]:
    """Return names as PostgreSQL keeps them."""
    return [name.encode() for name in names]
