"""How commands are applied: rules on a draft, then a commit, until it is applied.

**Combining.** A process has one commit of a session under way. Commands that come meanwhile wait, and make the next
commit, up to a number and size: each rule sees the changes of the rules before it. A rule that raises has changed
nothing, and the others are committed.

**Retry.** A commit that is stale changes nothing. The document learns what has changed, and the rules decide again. A
result that changes nothing counts only if the document is known to be the stored one: it is read again before
(`_check_current`).

**Other writers.** While one process alone writes a session, its commits say that they depend on everything (`exact`):
nothing has to be compared. After another one has written too, the next commits carry what they have read, so that most
of them are applied although others write.

**Lost writes.** A writer numbers its commits of a session (`commit.py`). If the stored number is smaller than one that
was acknowledged, a failover has lost commits: the next one restores the exchanges, events and asks that are still at
work here (`core/rules/restore.py`).

**A commit without a reply**, because its command was cancelled or the store did not answer, may have been applied. The
document is forgotten, and the next command reads the session. It commits too, also if its rules change nothing: its
commit has another number, so the one before is refused if it arrives after that. So a result tells what became of all
commits before it. A session in doubt is known here until then, and read again once a second.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from limpet.config import Limits
from limpet.core.records import WakeUp
from limpet.core.rules import asks, calls, life, readers, streams, turns
from limpet.core.rules.document import Document, ExchangeRecord, Told, replica_of
from limpet.core.rules.restore import restore
from limpet.errors import LimpetError, StoreError, StoreUnavailable
from limpet.ports import Random
from limpet.stores.backend import P, R, Rule
from limpet.stores.base.replicas import lease_ended
from limpet.stores.shared.commit import PLACES, SLACK, Commit, Done, LostWrites, Stale
from limpet.stores.shared.draft import SharedDocument
from limpet.stores.shared.entry import KnownSession, RuleCommand
from limpet.stores.shared.fields import Unreadable
from limpet.stores.shared.heads import NeedsIndex
from limpet.stores.shared.known import KnownSessions
from limpet.stores.shared.shelf import NoRoom, NotKept
from limpet.stores.shared.tables import ABSENT, NeedsAll

_HINT, _SIZE, _STATE, _KEPT = (PLACES[name] for name in ("hint", "size", "state", "kept"))
_COMBINED: Final = 128
_COMBINED_BYTES: Final = 1024 * 1024
"""Commands in one commit, and their bytes. One command may have more."""
_SMALL: Final = frozenset((calls.claim, calls.end_plain))
"""The rules of a plain call, whose arguments have no such size."""
_ENDS: Final = (calls.end_plain, calls.settle)
_SHY: Final = 64
"""Commits that carry what they have read, after another process has written the session."""


def left_by(doc: Document, owner: str, now: float) -> list[tuple[str, ExchangeRecord]]:
    found = calls.orphaned(doc, owner, now)
    if not found and isinstance(doc, SharedDocument):
        doc.forget_writers(owner)
    return found


def _reset(commands: list[RuleCommand]) -> None:
    for one in commands:
        one.reset()


def _how_many(waiting: list[RuleCommand]) -> int:
    """Return how many of the commands that wait make the next commit."""
    size = 0
    for count, one in enumerate(waiting[:_COMBINED]):
        if one.rule in _SMALL:
            continue
        if one.rule is streams.append:
            size += sum([len(data) for _, data in one.args[2]])
        else:
            size += sum([len(given) for given in one.args if type(given) is bytes])
        if count and size > _COMBINED_BYTES:
            return count
    return _COMBINED


class CommandRounds(KnownSessions):
    """Applies rules to documents."""

    frees: frozenset[Callable[..., Any]] = frozenset(
        (
            *(calls.end_plain, calls.settle, calls.give_back, calls.reap, left_by),
            *(readers.detach, readers.vouch, asks.withdraw, turns.turn, turns.hold_turn, turns.pass_turn),
            *(life.change, life.take_home, life.unsubscribe, life.examine),
        )
    )
    """Rules that end and forget: they are applied also if the store has no room for anything new."""
    works: frozenset[Callable[..., Any]] = frozenset((calls.claim, readers.attach, asks.ask, turns.hold_turn))
    """Rules that give this replica work in a session."""
    gathers = False
    """The commands of one pass of the loop are combined, also if no commit is under way."""

    def __init__(self, limits: Limits, random: Random) -> None:
        super().__init__(limits, random)
        self._rounds: set[asyncio.Task[None]] = set()

    async def apply(self, key: str, absent: R, rule: Rule[P, R], *args: P.args, **more: P.kwargs) -> R:
        """Apply a rule to a draft, and commit it.

        If another command of the session is under way, together with others after it.
        """
        command = RuleCommand(rule, args, more, self.me, absent)
        entry = self._entries.get(key) or self._entry(key)
        if not entry.is_busy:
            entry.is_busy = True
            try:
                if self.gathers:
                    await asyncio.sleep(0)
                if not entry.queue:
                    await self._round(entry, [command])
                    return command.outcome()  # type: ignore[no-any-return]
                # The commands that came in this pass of the loop come after it.
                entry.queue.insert(0, command)
            finally:
                self._release(entry)
        else:
            entry.queue.append(command)
        done = command.done = asyncio.get_running_loop().create_future()
        await done
        return command.outcome()  # type: ignore[no-any-return]

    def _release(self, entry: KnownSession) -> None:
        """After a commit: let the commands that wait make the next one."""
        if entry.queue:
            self._in_background(self._go_on(entry))
            return
        entry.is_busy = False
        if entry.doc is None and not entry.has_work(self.me):
            self._discard(entry)
        else:
            self._weigh(entry)

    async def _go_on(self, entry: KnownSession) -> None:
        """Let the commands that wait make commits, until none waits."""
        try:
            while entry.queue:
                count = _how_many(entry.queue)
                commands = [one for one in entry.queue[:count] if one.done is None or not one.done.done()]
                del entry.queue[:count]
                if commands:
                    await self._try_round(entry, commands)
                if len(commands) > 1 or entry.queue:
                    # The callers go on now, and their next commands are combined with those that wait.
                    await asyncio.sleep(0)
        finally:
            self._release(entry)

    async def _try_round(self, entry: KnownSession, commands: list[RuleCommand]) -> None:
        failed: Exception | None = StoreError("the store was closed")
        try:
            await self._round(entry, commands)
            failed = None
        except Exception as error:  # noqa: BLE001
            failed = error
        finally:
            for one in commands:
                if failed is not None:
                    one.reset(failed)
                done = one.done
                if done is not None and not done.done():
                    done.set_result(None)

    # One round: load, rules, commit, until it is applied

    async def _round(self, entry: KnownSession, commands: list[RuleCommand]) -> None:
        try:
            await self._decide(entry, commands)
        except Unreadable as error:
            self._forget(entry)
            for one in commands:
                one.reset()
            await self._drop(entry.key, error)
        except NotKept:
            entry.unknown()
            await self._apart(entry, commands)
        except NoRoom as full:
            entry.unknown()
            rest = [one for one in commands if one.rule in self.frees]
            for one in commands:
                one.reset(None if one in rest else full)
            if len(rest) == len(commands):
                raise
            if rest:
                await self._decide(entry, rest)
        except BaseException:
            # Whether the commit was applied is not known.
            entry.unknown()
            raise
        self._note_refused_ends(entry, commands)
        if self._taken:
            self._wake_taken()

    async def _apart(self, entry: KnownSession, commands: list[RuleCommand]) -> None:
        """The principal may not keep all of it: refuse the commands for which there is no room."""
        for one in commands:
            one.reset()
            if len(commands) > 1:
                await self._try_round(entry, [one])

    async def _decide(self, entry: KnownSession, commands: list[RuleCommand]) -> None:
        is_current = False
        needed: set[str] = set()
        while True:
            doc = entry.doc
            if doc is None:
                if await self._refresh(entry, b""):
                    is_current = True
                    continue
                _reset(commands)
                return
            me = self.me
            commands = self._of_this_life(commands)
            doc.begin_noting(is_noting=entry.shy > 0 or not doc.is_exact)
            try:
                self._apply_rules(entry, doc, commands)
            except (NeedsAll, NeedsIndex) as missing:
                await self._learn_more(entry, doc, missing, needed)
                continue
            is_changed = doc.collect()
            if is_changed or entry.doubted > entry.acknowledged:
                if entry.registered != me:
                    allowed = await self._register(entry, commands)
                    if allowed is not commands or self.me != me:
                        doc.undo()
                        commands = allowed
                        continue
                if await self._commit(entry, doc, commands, is_changed=is_changed):
                    return
                is_current = entry.doc is not None and entry.doc.is_exact
            elif is_current or await self._check_current(entry, doc):
                await self._tell(entry, doc)
                return
            else:
                # Another document, or none: then it is read once more, and that is the result.
                is_current = True

    def _apply_rules(self, entry: KnownSession, doc: SharedDocument, commands: list[RuleCommand]) -> None:
        if entry.lost is not None:
            if entry.writer == self._writer():
                self._restore(entry, doc, entry.lost)
            else:
                # An incarnation that is dead has lost them: others have ended its work.
                entry.lost = None
        for one in commands:
            one.error = None
            try:
                one.result = one.rule(doc, *one.args, **one.more)
            except LimpetError as error:
                one.error = error

    async def _check_current(self, entry: KnownSession, doc: SharedDocument) -> bool:
        """Return True if the document is the stored one; else the stored one replaces it."""
        numbers = doc.known_bytes if doc.is_exact else b""
        told = doc.told
        doc.undo()
        if await self._refresh(entry, numbers) and entry.doc is doc:
            doc.told = told
            return True
        return False

    def _of_this_life(self, commands: list[RuleCommand]) -> list[RuleCommand]:
        """Refuse work that an earlier incarnation would begin: it is dead, and no replica would find the work."""
        late = [one for one in commands if one.me != self.me and one.rule in self.works]
        for one in late:
            one.reset(lease_ended())
        return [one for one in commands if one not in late] if late else commands

    async def _register(self, entry: KnownSession, commands: list[RuleCommand]) -> list[RuleCommand]:
        """Register this incarnation before its first work in a session.

        Return the commands without those that it may not begin.
        """
        works = [one for one in commands if one.rule in self.works]
        if not works and entry.lost is None:
            return commands
        me = self.me
        try:
            await self.register(entry.key)
        except StoreUnavailable as dead:
            for one in works:
                one.reset(dead)
            if not works:
                raise
            return [one for one in commands if one not in works]
        entry.registered = me
        return commands

    # The commit

    async def _commit(
        self, entry: KnownSession, doc: SharedDocument, commands: list[RuleCommand], *, is_changed: bool
    ) -> bool:
        """Commit the changes. True if they are applied, or the session is gone; else the rules decide again."""
        writer = self._writer()
        if writer != entry.writer:
            # The first commit, or the first one of a new incarnation.
            entry.writer = writer
            entry.acknowledged = doc.writers.get(writer, 0)
            entry.lost = None
            entry.doubted = 0
        entry.number = max(entry.number, entry.acknowledged) + 1
        renews = self._keep_longer(doc)
        commit = doc.commit(
            writer, entry.number, entry.acknowledged, self._mark, compares=doc.is_exact or entry.careful > 0
        )
        commit.renews = renews
        if renews or commit.events:
            record = doc.record
            commit.life = max(record.idle, record.grace) + max(0.0, doc.hint - self.now()) + SLACK
        commit.frees = entry.lost is None and (
            not is_changed or self.frees.issuperset([one.rule for one in commands])
        )
        commit.keeps = int(doc.kept - doc.known[_KEPT])
        if doc.told:
            commit.told = self._for_others(doc)
        try:
            reply = await self.commit(entry.key, commit)
        except (NoRoom, NotKept):
            raise
        except BaseException:
            self._doubt_commit(entry, doc, commit)
            raise
        if isinstance(reply, Done):
            known, grown = doc.known, int(doc.size - doc.known[_SIZE])
            self._accept(entry, doc, commit, reply)
            if grown or doc.known[_HINT] != known[_HINT] or doc.known[_STATE] != known[_STATE]:
                await self._report(entry, doc, known, grown)
            return True
        for one in commands:
            one.reset()
        doc.undo()
        if reply is None:
            self._forget(entry)
            return True
        self._learn_refusal(entry, doc, commit, reply)
        return False

    def _doubt_commit(self, entry: KnownSession, doc: SharedDocument, commit: Commit) -> None:
        """The commit may be applied, or may still arrive."""
        entry.doubted = commit.number
        # If it was the first one, nothing in the session may name this incarnation when it is declared dead.
        entry.registered = ""
        # Nothing else would report it.
        if any(doc.known[place] != doc.numbers[place] for place in (_HINT, _SIZE, _STATE)):
            self.doubt(entry.key)

    def _learn_refusal(
        self, entry: KnownSession, doc: SharedDocument, commit: Commit, reply: Stale | LostWrites
    ) -> None:
        """Others have written what the rules have read: learn it."""
        entry.shy = _SHY
        if isinstance(reply, LostWrites):
            # The session is read again, which finds what is lost.
            entry.unknown()
        elif commit.compare is None:
            if not doc.is_exact:
                entry.careful = _SHY
            fields = {name: value for name, value in reply.fields.items() if value is not None}
            self._replace(entry, doc, SharedDocument(reply.numbers, fields))
        else:
            self._learn(entry, doc, reply)

    def _keep_longer(self, doc: SharedDocument) -> bool:
        """Return True if the session has to be kept longer: after a sweep has examined it, or at half of the slack."""
        is_examined = doc.hint > doc.known[_HINT]
        if not is_examined and doc.expires >= doc.touched and doc.expires >= doc.hint:
            return False
        doc.expires = max(self.now(), doc.hint) + SLACK / 2
        doc.collect()
        return True

    def _for_others(self, doc: SharedDocument) -> list[tuple[WakeUp, str, str]]:
        mine = replica_of(self.me)
        return [
            (what, name, replica_of(owner))
            for what, name, owner in doc.told
            if isinstance(what, WakeUp) and owner and replica_of(owner) != mine
        ]

    def _wake_here(self, key: str, told: Iterable[Told]) -> None:
        """Send the wake-ups that are for this replica, or for all."""
        mine = replica_of(self.me)
        for what, name, owner in told:
            if isinstance(what, WakeUp) and (not owner or replica_of(owner) == mine):
                self.wake(what, key, name)

    def _accept(self, entry: KnownSession, doc: SharedDocument, commit: Commit, reply: Done) -> None:
        self._note_work(entry, doc, commit)
        told, doc.told = doc.told, ()
        entry.acknowledged = commit.number
        doc.accept(reply, commit)
        if entry.careful:
            entry.careful -= 1
        if reply.numbers != commit.after:
            entry.shy = _SHY
        elif entry.shy:
            entry.shy -= 1
            if not entry.shy and not doc.is_exact:
                # No other process has written for a while: know all of the session again.
                entry.unknown()
        if told:
            self._wake_here(entry.key, told)

    async def _report(
        self, entry: KnownSession, doc: SharedDocument, known: tuple[float, ...], grown: int
    ) -> None:
        """Carry a commit over to indexes in other places, as `applied`."""
        try:
            await self.applied(entry.key, doc, known, grown)
        except BaseException as error:
            self.doubt(entry.key)
            if not isinstance(error, StoreError):
                raise

    def _note_work(self, entry: KnownSession, doc: SharedDocument, commit: Commit) -> None:
        """Remember what runs, waits and was written here."""
        me, number, running = self.me, commit.number, entry.running
        exchanges = doc.tables["exchanges"]
        for stream in exchanges.journal:
            exchange = dict.get(exchanges, stream)
            if exchange is not None and exchange.running and exchange.owner == me:
                running[stream] = exchange, running.get(stream, (None, number))[1]
            else:
                self._note_end(entry, stream)
        if doc.tables["asks"].journal:
            self._note_asks(entry, doc, number)
        if doc.logs.journal:
            self._note_events(entry, doc, commit)
        if entry.lost is not None:
            entry.lost = None
            entry.running = {stream: (one, number) for stream, (one, _) in running.items()}
            self._observer.note(
                "store.rebased", session=entry.key[:8], events=sum(map(len, commit.events.values()))
            )

    def _note_end(self, entry: KnownSession, stream: str) -> None:
        """An exchange does not run here any more: it has ended, or others have ended it."""
        if entry.running.pop(stream, None) is not None:
            self._recent.forget(entry.key, stream)

    def _note_refused_ends(self, entry: KnownSession, commands: list[RuleCommand]) -> None:
        for one in commands:
            if one.error is not None and one.rule in _ENDS:
                self._note_end(entry, one.args[0])

    def _note_asks(self, entry: KnownSession, doc: SharedDocument, number: int) -> None:
        for name, _, ask in doc.tables["asks"].changes():
            if ask is not ABSENT and ask.owner == self.me:
                entry.asks[name] = ask, number
            else:
                entry.asks.pop(name, None)

    def _note_events(self, entry: KnownSession, doc: SharedDocument, commit: Commit) -> None:
        for stream, before, log in doc.logs.changes():
            if stream in entry.running and log is not ABSENT:
                low = log.low
                start = low if before is ABSENT else max(before.top, low)
                self._recent.push(entry.key, stream, start, commit.events.get(stream, ()))

    async def _tell(self, entry: KnownSession, doc: SharedDocument) -> None:
        """Send the wake-ups of rules that have changed nothing."""
        if doc.told:
            others, told = self._for_others(doc), doc.told
            doc.undo()
            self._wake_here(entry.key, told)
            if others:
                await self.tell(entry.key, others)
        else:
            doc.undo()

    # Wake-ups of others, and lost writes

    def woken(self, kind: WakeUp, key: str, name: str) -> None:
        """Pass on a wake-up of another process."""
        if kind is WakeUp.CLOSED:
            self.closed_elsewhere(key)
        elif kind is WakeUp.STREAM:
            # Another replica has written: it has ended the exchange, if it ran here. Its readers here read the store
            # now.
            self._recent.forget(key, name)
        elif kind is WakeUp.TAKEN and self.reads(key, name):
            # The wake-up may be older than the reader that is here now: read the session.
            self._in_background(self.look_at(key))
            return
        self.wake(kind, key, name)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)

    def _restore(self, entry: KnownSession, doc: SharedDocument, last: int) -> None:
        """Put back what the store has lost of this incarnation.

        The work of an earlier one is ended by others, or was.
        """
        mine = {stream: one for stream, one in entry.running.items() if one[0].owner == self.me}
        running = {stream: one for stream, (one, number) in mine.items() if number > last}
        waiting = {
            name: one for name, (one, number) in entry.asks.items() if number > last and one.owner == self.me
        }
        logs = {
            stream: writes for stream in mine if (writes := self._recent.get(entry.key, stream)) is not None
        }
        restore(doc, running, waiting, logs)
