"""A client that is not installed is a failure with a remedy, never a test that did not run."""

import pytest

from tests.interop.peers import Peer


def test_a_client_that_is_not_installed_fails_with_the_command_that_installs_it() -> None:
    absent = Peer("absent", "legacy", ".peers/absent/bin/python", "absent.py", "peers", 1, rewinds=False)
    with pytest.raises(pytest.fail.Exception, match=r"\.peers/absent/bin/python .* run `make peers`"):
        absent.command()
