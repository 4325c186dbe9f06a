"""Servers that all tests of this directory share: started once in each worker of the run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http import serving
from tests.http.certificates import write_certificate


@pytest.fixture(scope="session")
def trial() -> Iterator[serving.Process]:
    """A process with the test back."""
    with serving.process() as running:
        yield running


@pytest.fixture(scope="session")
def everything() -> Iterator[serving.Process]:
    """The example server, as `make serve` runs it."""
    with serving.limpet_serve("examples/everything.py:server") as running:
        yield running


@pytest.fixture(scope="session", params=["trial", "everything"])
def house(request: pytest.FixtureRequest) -> serving.Process:
    """Both, one after the other; they share echo, slow, ticks, fanout and bump."""
    running: serving.Process = request.getfixturevalue(request.param)
    return running


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that signs itself, and its key, in one file."""
    return write_certificate(tmp_path_factory.mktemp("tls") / "server.pem")
