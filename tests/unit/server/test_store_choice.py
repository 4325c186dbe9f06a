"""A server's store: given, named by a URL, or memory; in a namespace of its own."""

from contextlib import aclosing
from pathlib import Path

import pytest

from limpet import Server
from limpet.errors import ConfigError
from limpet.server.running.namespaces import namespace_of
from limpet.stores.memory import MemoryStore
from limpet.stores.sqlite import SqliteStore
from tests.support import async_test


def test_a_name_is_its_own_namespace_and_others_get_one_that_differs() -> None:
    assert namespace_of("orders-v2.eu") == "orders-v2.eu"
    spaced, dashed = namespace_of("our orders"), namespace_of("our/orders")
    assert spaced != dashed
    assert {spaced[:11], dashed[:11]} == {"our-orders-"}
    assert len(namespace_of("é" * 500)) <= 64


@async_test
async def test_a_url_names_the_store_and_nothing_is_opened_before_the_engine(tmp_path: Path) -> None:
    server = Server("orders", store=f"sqlite:///{tmp_path}/store.db")
    assert list(tmp_path.iterdir()) == []
    async with aclosing(server.engine):
        await server.engine.ensure_started()
        assert isinstance(server.engine.runtime.store, SqliteStore)
        assert Path(tmp_path, "store.orders.db").exists()


def test_a_store_is_taken_as_it_is() -> None:
    store = MemoryStore()
    assert Server("a", store=store).engine.runtime.store is store
    assert isinstance(Server("a").engine.runtime.store, MemoryStore)


def test_a_url_that_names_no_store_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no store.s URL begins with .mongodb.: use one of"):
        _ = Server("a", store="mongodb://h").engine
