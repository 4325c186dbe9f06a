from collections.abc import Iterator

import pytest

from tests.browser.chromium import Chromium, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """One Chromium for all tests."""
    with chromium() as running:
        yield running
