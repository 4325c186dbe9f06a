"""`limpet.testing` has the members that its page describes, and no others."""

import pkgutil
import re
from pathlib import Path
from typing import Final

import limpet.testing

PAGE: Final = (Path(__file__).parents[2] / "docs/testing.md").read_text()


def test_the_page_lists_every_public_name_and_no_other() -> None:
    assert sorted(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == sorted(limpet.testing.__all__)


def test_every_module_defines_a_public_name() -> None:
    """A module that no public name comes from is support of our own tests, and belongs into tests/."""
    public = [getattr(limpet.testing, name) for name in limpet.testing.__all__]
    here = [value.__module__ for value in public if value.__module__.startswith("limpet.testing.")]
    modules = {module.split(".")[2] for module in here}
    assert {module.name for module in pkgutil.iter_modules(limpet.testing.__path__)} == modules
