"""A store without state or tasks says so, at the start where it can be known, else where it is used."""

from contextlib import aclosing

import pytest

from limpet import Client, Context, Server
from limpet.errors import ConfigError, ToolError
from limpet.stores.base import NoState, NoTasks
from limpet.stores.base.tasks import TaskPart
from limpet.stores.memory import MemoryStore
from limpet.testing.store.bench import refused
from tests.support import async_test


class Stateless(NoState, MemoryStore):
    """A store that keeps no state."""


class Taskless(NoTasks, MemoryStore):
    """A store that keeps no tasks."""


class Unfinished(MemoryStore):
    """A store without the methods of tasks that a store writes."""

    load_task = TaskPart.load_task
    swap_task = TaskPart.swap_task
    orphan_tasks = TaskPart.orphan_tasks


@async_test
async def test_a_server_with_state_of_principals_does_not_start_on_a_store_without_state() -> None:
    server = Server("app", store=Stateless(), state="principal")
    with pytest.raises(ConfigError, match="Stateless keeps no state"):
        await server.engine.ensure_started()


@async_test
async def test_a_server_with_a_tool_that_may_become_a_task_does_not_start_on_a_store_without_tasks() -> None:
    server = Server("app", store=Taskless())

    @server.tool(task="optional")
    async def slow() -> str:
        return "done"

    with pytest.raises(ConfigError, match="Taskless keeps no tasks"):
        await server.engine.ensure_started()


@async_test
async def test_a_server_that_needs_neither_starts() -> None:
    for store in (Stateless(), Taskless()):
        server = Server("app", store=store)
        async with aclosing(server.engine):
            await server.engine.ensure_started()


@async_test
async def test_a_client_reads_which_store_lacks_a_part_that_a_tool_uses() -> None:
    server = Server("app", store=Stateless())

    @server.tool
    async def remember(ctx: Context) -> str:
        await ctx.state.set("field", 1)
        return "done"

    async with Client(server, protocol_version="2025-11-25") as client:
        with pytest.raises(ToolError, match="Stateless keeps no state"):
            await client.call_tool("remember")


@async_test
async def test_a_store_without_state_refuses_each_call_for_state() -> None:
    store = Stateless()
    for attempt in (
        store.open_area("area", "principal", 1.0),
        store.find_area("area", "principal"),
        store.get_state("area", "field"),
        store.set_state("area", "field", b"1", op="op"),
        store.add_state("area", "field", 1, op="op"),
    ):
        await refused(attempt, ConfigError)


@async_test
async def test_a_store_without_tasks_has_none_and_refuses_a_new_one() -> None:
    store = Taskless()
    await refused(store.open_task("key", "principal", b"{}", ttl=1.0), ConfigError)
    assert await store.get_task(key="key", principal="principal") is None
    assert await store.set_task("key", "principal", b"{}", version=1, ttl=1.0) == -1
    assert await store.orphan_tasks(known={"key"}) == []


@async_test
async def test_a_store_that_forgets_a_method_of_tasks_fails_and_does_not_say_that_a_task_is_kept() -> None:
    store = Unfinished()
    for attempt in (
        store.open_task("key", "principal", b"{}", ttl=1.0),
        store.get_task("key", "principal"),
        store.orphan_tasks(),
    ):
        await refused(attempt, NotImplementedError)
