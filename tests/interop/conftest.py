"""The checks that both transports share explain themselves when they fail, like those in test files."""

import pytest

pytest.register_assert_rewrite("tests.interop.checks")
