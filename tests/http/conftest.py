"""Servers that the tests of one module share."""

from collections.abc import Iterator

import pytest

from tests.http import serving


@pytest.fixture(scope="module")
def trial() -> Iterator[serving.Process]:
    """A process with the test back."""
    with serving.process() as running:
        yield running
