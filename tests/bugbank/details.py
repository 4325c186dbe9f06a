"""Mistakes of our own history that need one exact moment: each is a line that is wrong again, found by the test that was written for it."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from limpet.engine import handling
from limpet.engine.collecting import Collecting
from limpet.engine.forwarding import _AnswerLog
from limpet.engine.readers import Readers
from limpet.engine.replica import Replica
from limpet.engine.tasks import Tasks
from limpet.stores.shared.entry import KnownSession
from limpet.stores.shared.known import KnownSessions
from tests.bugbank.rewriting import Patches, rewritten


class Detail(NamedTuple):
    """A line that is wrong."""

    function: Any
    line: str
    wrong: str
    origin: str
    test: str
    """Below `tests/unit`."""
    arguments: Sequence[tuple[str, Any]] = ()
    """Of the test."""

    @property
    def patches(self) -> Patches:
        """The mistake as a context."""
        return rewritten(self.function, self.line, self.wrong)

    def is_found(self) -> bool:
        """Return True if its test fails."""
        module, _, name = self.test.partition("::")
        try:
            getattr(import_module(f"tests.unit.{module.replace('/', '.')}"), name)(**dict(self.arguments))
        except Exception:
            return True
        return False


DETAILS: Final[dict[str, Detail]] = {
    "a commit without a reply is forgotten": Detail(
        KnownSession.is_in_doubt,
        "return self.doubted > self.acknowledged",
        "return False",
        "ours, 7dd66bf6",
        "stores/test_late_commits::test_a_commit_that_arrives_before_the_next_one_does_not_pass_for_it",
    ),
    "a stop closes the hidden session of all replicas": Detail(
        Readers.read_end,
        "page = await",
        "self._runtime.local_session(attached.record); page = await",
        "ours, 2df2d4ab",
        "fronts/http/test_idempotency::test_a_replica_that_stops_while_it_reads_a_kept_answer_leaves_the_answers_to_the_others",
    ),
    "a reader that a failover has brought back stays": Detail(
        Readers.check_held,
        "self._doubt(key, stream)",
        "pass",
        "ours, 24562fe5",
        "engine/test_replicas::test_a_reader_of_the_store_that_is_not_here_is_detached_and_one_that_is_here_stays",
    ),
    "a lost attach removes the reader that is alive": Detail(
        Readers._undo,
        "living and await",
        "False and await",
        "ours, 2df2d4ab",
        "engine/test_replicas::test_a_lost_attach_gives_its_place_back_to_the_reader_that_is_alive",
    ),
    "the index of the other stream is forgotten": Detail(
        KnownSessions._learn_more,
        "streams.add(missing.stream)",
        "streams = {missing.stream}",
        "ours, 21d0a2f4",
        "stores/test_shared_cache::test_commands_of_one_commit_that_write_two_streams_and_prove_places_in_both_come_to_their_end",
    ),
    "a task that begins is taken for a lost one": Detail(
        Tasks.reap,
        "ChainMap[str, Any](self._running, self._ends.unstored)",
        "{**self._running, **self._ends.unstored}",
        "ours, cedb6c30",
        "server/test_task_owners::test_a_task_that_begins_while_its_owner_looks_for_lost_ones_is_not_taken_for_one",
    ),
    "a stop cancels a wait for another process": Detail(
        Collecting.end_waits,
        "waits, self._waits = self._waits, {}",
        "waits = {}",
        "ours, f4f6eece",
        "server/test_hand_over::test_a_request_that_waits_for_a_call_when_the_drain_time_ends_gets_no_error",
    ),
    "the answer of a forwarded request is tried once": Detail(
        _AnswerLog.write,
        "await retried(lambda: self._store.append(session, stream, self._fence, events))",
        "await self._store.append(session, stream, self._fence, events)",
        "ours, 158edfa6",
        "engine/test_answer_log::test_it_is_written_once_and_to_its_end_when_the_store_is_back",
        [("command", "append"), ("lost", False)],
    ),
    "a sweep looks once for calls of dead replicas": Detail(
        Replica.sweep,
        "goes_on = True in ended and not left",
        "goes_on = False",
        "ours, c3d2c217",
        "engine/test_sweep::test_all_orphans_are_ended_in_one_sweep_although_the_store_returns_some_at_a_time",
    ),
    "an unavailable store is a fault of the server": Detail(
        handling._outcome_of,
        "exchange.request.method in REPEATABLE",
        "False",
        "ours, d31909c1",
        "server/test_store_away::test_if_one_command_of_the_store_fails_the_answer_is_right_or_busy",
        [("era", "2025"), ("what", "prompts/get"), ("front", "http")],
    ),
}
