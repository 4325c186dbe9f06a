"""One PostgreSQL for the tests of a process."""

from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer, postgres_server


@pytest.fixture(scope="package")
def server() -> Iterator[PostgresServer]:
    """A server for tests that neither stop nor change it."""
    with postgres_server() as running:
        yield running
