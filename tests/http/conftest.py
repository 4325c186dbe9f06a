"""Servers that all tests of this directory share: started once in each worker of the run."""

from collections.abc import Iterator

import pytest

from tests.http import serving


@pytest.fixture(scope="session")
def trial() -> Iterator[serving.Process]:
    """A process with the test back."""
    with serving.process() as running:
        yield running


@pytest.fixture(scope="session")
def everything() -> Iterator[serving.Process]:
    """The example server, as `make serve` runs it."""
    with serving.holdfast_serve("examples/everything.py:server") as running:
        yield running


@pytest.fixture(scope="session", params=["trial", "everything"])
def house(request: pytest.FixtureRequest) -> serving.Process:
    """Both, one after the other; they share echo, slow, ticks, fanout and bump."""
    running: serving.Process = request.getfixturevalue(request.param)
    return running
