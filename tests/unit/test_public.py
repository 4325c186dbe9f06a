"""The public interface: every name exists, and every public exception is in `limpet.errors`."""

from importlib import import_module

import pytest

import limpet
from tests.test_architecture import house
from tools.reference import INTERNAL, PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name: str) -> None:
    module = import_module(name)
    assert [member for member in getattr(module, "__all__", ()) if not hasattr(module, member)] == []


def test_the_package_itself_has_the_names_of_the_first_pages_only() -> None:
    assert limpet.__all__ == sorted(limpet.__all__)
    assert len(limpet.__all__) <= 28


def test_every_member_that_the_reference_hides_exists() -> None:
    server = limpet.Server("s")
    assert {name for name in INTERNAL["Server"] if not hasattr(server, name)} == set()


def test_an_exception_that_another_layer_imports_is_in_errors() -> None:
    strays = [
        f"{source.module}:{item.line}: {item.name}"
        for _, source in house()
        for item in source.imports
        if item.top == "limpet" and item.layer not in {"errors", source.layer} and _is_exception(item.name)
    ]
    assert strays == []


def _is_exception(name: str) -> bool:
    module, _, member = name.rpartition(".")
    found = getattr(import_module(module), member, None)
    return isinstance(found, type) and issubclass(found, BaseException)
