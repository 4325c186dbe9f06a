"""What `holdfast` says it has, it has."""

import holdfast


def test_every_public_name_can_be_imported() -> None:
    missing = [name for name in holdfast.__all__ if not hasattr(holdfast, name)]
    assert missing == []
    assert holdfast.__all__ == sorted(holdfast.__all__)
