"""The verdict: invariants I1 to I12 over a trial's history, during the run and from its file (`python -m tests.chaos.judge FILE`).

| | invariant |
|---|---|
| I1 | each request has exactly one end, its own, and nothing after it; it fails only if something was wrong, and in time |
| I2 | the events of a stream arrive in order, none is lost, none comes twice, also after cuts |
| I3 | each payload belongs to the request that receives it |
| I4 | a request is executed once, also if it is sent again; a duplicate id runs nothing |
| I5 | counters are exact |
| I6 | each question is answered by its own answer |
| I7 | no more questions are outstanding than allowed |
| I8 | a session closes once, never early and not late; a living session is found |
| I9 | memory stays bounded, and the database is empty at the end |
| I10 | a stranger gets 404 and changes nothing |
| I11 | no log has a session id, a token or a payload |
| I12 | nothing fails inside, and no call is sent away while nothing is wrong |
"""

import math
import re
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Final

from limpet.errors import BUSY, OUTCOME_UNKNOWN
from tests.chaos.backs import BACKS
from tests.chaos.history import History, Life, read_history
from tests.chaos.notes import CREDIT, FANOUT, Call, Violation
from tests.chaos.replica import Entry

FIRED: Final = 0.95
"""A trial in which less of the plan came true is not valid."""
LATE: Final = 3.0
"""Seconds that a busy machine may add to any bound."""
RSS: Final = 400 * 1024 * 1024
LEAVER_TELLS: Final = 2.0
"""Seconds between two signs of a client that will leave."""
REPEATABLE: Final = {"bump", "quick", "counter"}
"""Tools answered with plain JSON: an answer lost on its way may be asked for again, and is another call."""
UNRESUMABLE: Final = re.compile(r"400 .*event_id_unresumable")


class Judge:
    """Looks at everything once the trial is over."""

    def __init__(self, history: History) -> None:
        self._plan = history.opening.plan
        self._history = history
        self._notes = history.notes
        self._journal = history.journal
        self._lives = {life.name: life for life in history.lives}
        self.violations: list[Violation] = [*history.notes.violations, *history.found]
        self.lags = self._measured_lags()
        self.unknown = 0
        """Calls whose outcome their client cannot know."""
        self.excused: Counter[str] = Counter()
        """What would be a violation, had nothing gone wrong: by the reason why it is not one."""
        # A busy machine stops a process as SIGSTOP does.
        for entry in self._journal:
            if entry.what == "starved" and entry.replica in self._lives:
                self._lives[entry.replica].stopped.append((entry.at - entry.value, entry.at))
        self._serving = self._times_of_service()
        self.reaped_after: list[float] = []
        self.most_memory = 0.0

    @property
    def is_valid(self) -> bool:
        """True if enough of the planned faults happened."""
        fired = self._history.opening.fired
        return all(fired.get(kind, 0) >= FIRED * n for kind, n in self._history.opening.planned.items())

    def judge(self) -> list[Violation]:
        """Check every invariant that a trial can show; return the violations."""
        starts: dict[str, list[Entry]] = defaultdict(list)
        for entry in self._journal:
            if entry.what == "start":
                starts[entry.nonce].append(entry)
        self.received()
        self._ends(starts)
        self._starts(starts)
        self._counters(starts)
        self._closings()
        self._memory()
        self._availability()
        return self.violations

    def received(self) -> list[Violation]:
        """Check the messages of every call, and nothing else; return the violations."""
        for call in self._notes.calls:
            self._stream(call)
            self._answer(call)
        return self.violations

    def _violate(self, law: str, what: str, at: float = 0.0) -> None:
        self.violations.append(Violation(law, what, at))

    # I1, I2, I3: the messages of one call

    def _stream(self, call: Call) -> None:
        for gap in call.gaps:
            self._violate("I2", f"{call.nonce} has a gap: {gap}")
        numbered = [(one.what, one.id.rsplit(".", 2)) for one in call.received if one.id]
        if len({stream for _, (stream, *_rest) in numbered}) > 1:
            self._violate("I2", f"{call.nonce} moved from one stream to another")
        sequence = [int(seq) for what, (_, seq, *_rest) in numbered if what != "mark"]
        for before, after in pairwise(sequence):
            if after != before + 1:
                self._violate("I2", f"{call.nonce} got event {after} after {before}")
        self._messages(call)

    def _messages(self, call: Call) -> None:
        step = 0
        for index, one in enumerate(call.received):
            match one.what:
                case "progress":
                    step += 1
                    if one.text != f"{call.mark}/{step}":
                        law = "I2" if one.text.startswith(call.mark) else "I3"
                        self._violate(law, f"{call.nonce} got {one.text!r}, not {call.mark}/{step}", one.at)
                case "ask" if not one.text.startswith(call.mark):
                    self._violate("I3", f"{call.nonce} is asked {one.text!r}", one.at)
                case "answer":
                    if one.text != repr(call.id):
                        self._violate("I1", f"{call.nonce} got the answer to {one.text}", one.at)
                    if any(later.what != "mark" for later in call.received[index + 1 :]):
                        self._violate("I1", f"{call.nonce} gets more after its end", one.at)
                case _:
                    pass

    def _answer(self, call: Call) -> None:
        if call.code is not None or call.answer is None:
            return
        is_stream = any(one.id for one in call.received)
        if call.answer["result"].get("isError"):
            return
        if not call.text.startswith(call.mark):
            self._violate("I3", f"{call.nonce} got {call.text[:100]!r}")
        elif call.steps_wanted and is_stream and call.steps != call.steps_wanted:
            self._violate("I2", f"{call.nonce} ended well after {call.steps} of its events")
        elif call.tool == "fanout":
            expected = [call.mark, *(f"answer to {call.mark}/{number}" for number in range(FANOUT))]
            if call.text.split("\n") != expected:
                self._violate("I6", f"{call.nonce} was given other answers: {call.text[:200]!r}")

    # I1: one end each, and a correct one

    def _ends(self, starts: dict[str, list[Entry]]) -> None:
        for call in self._notes.calls:
            if call.answer is None:
                self._given_up(call)
            elif call.code == OUTCOME_UNKNOWN:
                self._lost(call, starts[call.nonce])
            elif call.code == BUSY and self._troubled(call.began, call.ended):
                self.excused["refused as busy, not executed"] += 1
            elif call.code is not None:
                if self._outage(call.began, call.ended):
                    self.excused["another error, in an outage"] += 1
                else:
                    self._violate("I1", f"{call.nonce} ended with {call.answer['error']} for no reason")
            elif _failed(call):
                if self._outage(call.began, call.ended):
                    self.excused["a failed tool, in an outage"] += 1
                else:
                    self._violate("I1", f"{call.nonce} failed without an outage: {call.answer}")

    def _given_up(self, call: Call) -> None:
        """A call without an end: its client left, or the database has lost what was acknowledged."""
        if call.is_left:
            return
        if call.gave_up.startswith("404 "):
            if not self._is_lost(self._notes.sessions.get(call.session, 0.0)):
                self._violate("I8", f"a living session was not found: {call.nonce} {call.gave_up}")
        elif UNRESUMABLE.match(call.gave_up) and self._is_lost(*self._written(call.received[-1].at)):
            self.excused["the place of a stream, lost in a failover"] += 1
        else:
            law = "I2" if call.gave_up.startswith("4") else "I1"
            self._violate(law, f"{call.nonce} has no end: {call.gave_up}; {call.state}")

    def _lost(self, call: Call, starts: list[Entry]) -> None:
        """A call may be lost only with its replica, and its client receives the error in time."""
        self.unknown += 1
        lives = [self._lives[entry.replica] for entry in starts if entry.replica in self._lives]
        # Without a start its replica ended between claim and handler, and no journal names that replica. Nor does one
        # name the replica of a lost request that collects a call which was handed over: it has an id of its own.
        is_own = call.answer.get("id", call.id) == call.id
        suspects = lives if is_own and lives else list(self._lives.values())
        hurt = any(_hurt(life, call.began, call.ended) for life in suspects)
        away = self._outage(call.began, call.ended)
        if hurt or away:
            reason = "its replica" if hurt and suspects is lives else "a replica" if hurt else away
            self.excused[f"an unknown outcome: {reason} had failed"] += 1
            for life in lives if is_own else ():
                if life.ended is not None and call.began < life.ended < call.ended:
                    self._reaped(call, life.ended)
        else:
            ran = [life.name for life in lives]
            self._violate("I1", f"{call.nonce} was given up although {ran} lived")

    def _reaped(self, call: Call, died: float) -> None:
        after = call.ended - died
        self.reaped_after.append(after)
        others = any(_hurt(life, died, call.ended) for life in self._lives.values() if life.ended != died)
        # For one lease after an outage no replica is declared dead.
        if (
            after - self._closed(died, call.ended) > self._plan.lease + 2 + LATE
            and not others
            and not self._outage(died - self._plan.lease, call.ended)
        ):
            self._violate("I1", f"{call.nonce} heard {after:.1f} s late that its replica is dead")

    def _closed(self, begin: float, end: float) -> float:
        """Return for how many seconds of a time no process took requests: no client can get an answer."""
        free = begin
        closed = 0.0
        for opened, shut in self._serving:
            if shut > free and opened < end:
                closed += max(0.0, opened - free)
                free = max(free, shut)
        return closed + max(0.0, end - free)

    def _times_of_service(self) -> list[tuple[float, float]]:
        """Return from when until when each process took requests. The balancer notices a new one within a second."""
        ready = {entry.replica: entry.at + 1 for entry in self._journal if entry.what == "ready"}
        return sorted(
            (ready.get(life.name, life.began), life.leaving or life.ended or math.inf)
            for life in self._lives.values()
        )

    def _outage(self, begin: float, end: float) -> str:
        """Name the part that was away then; empty: none was."""
        away = {one.what for one in self._history.outages if one.began - 1 < end and begin < one.over + LATE}
        return "" if not away else "the server behind" if away == {"behind"} else "the database"

    def _is_lost(self, at: float, until: float = 0.0) -> bool:
        """True if a failover may have lost what was written then: from its last second on, until its clients are at the new database."""
        lost = [one for one in self._history.outages if one.lost]
        return any(one.began - 1 < (until or at) and at < one.over + LATE for one in lost)

    def _written(self, received: float) -> tuple[float, float]:
        """Return from when until when an event may have been written: a process that stood still sends it when it goes on."""
        stops = [stop for life in self._lives.values() for stop in life.stopped]
        return min([received, *(begin for begin, end in stops if begin < received < end + LATE)]), received

    def _troubled(self, begin: float, end: float) -> bool:
        return bool(self._outage(begin, end)) or any(_hurt(life, begin, end) for life in self._lives.values())

    # I4: at most once

    def _starts(self, starts: dict[str, list[Entry]]) -> None:
        claims = Counter(entry.claim for entries in starts.values() for entry in entries if entry.claim)
        for claim, times in claims.items():
            if times > 1:
                self._violate("I4", f"claim {claim} was started {times} times")
        ends = {entry.nonce: entry.at for entry in reversed(self._journal) if entry.what == "end"}
        calls = {call.nonce: call for call in self._notes.calls}
        for nonce, entries in starts.items():
            call = calls.get(nonce)
            if nonce in self._notes.duplicates:
                original = calls[self._notes.duplicates[nonce][0]]
                claimed = [original.began, *(entry.at for entry in starts[original.nonce])]
                if not any(map(self._is_lost, claimed)) and not self._is_reaped(original, starts):
                    self._imitated(original, nonce, entries, ends)
            elif call is not None and not self._may_run(call, entries):
                when = [f"{entry.replica} {entry.at:.3f}" for entry in entries]
                cuts = [f"{at:.3f}" for at in call.left]
                self._violate(
                    "I4", f"{nonce} ran {len(entries)} times for {call.posts} posts: {when}, cut at {cuts}"
                )

    def _imitated(self, original: Call, nonce: str, entries: list[Entry], ends: dict[str, float]) -> None:
        # Once the original has ended, its id is free: the duplicate is a call of its own.
        over = min(ends.get(original.nonce, math.inf), original.ended or math.inf)
        late = [entry for entry in entries[nonce == original.nonce :] if entry.at < over]
        if late and not original.code:
            self._violate("I4", f"{nonce} ran although its id was in flight")

    def _is_reaped(self, call: Call, starts: dict[str, list[Entry]]) -> bool:
        """True if a call without an answer was ended for its replica, which stood still or died."""
        lives = [self._lives[entry.replica] for entry in starts[call.nonce] if entry.replica in self._lives]
        return call.answer is None and any(_hurt(life, call.began, call.ended) for life in lives)

    def _may_run(self, call: Call, entries: list[Entry]) -> bool:
        """Once, and again for each repeat after an end that the client did not want to read.

        An answer, or −31002, counts as received when it is written to a connection which, as far as its replica knows, the client has not
        closed (`core/fate.py`). The client of a trial may read nothing of it and cut the connection. Under load the replica learns it late. Then
        the client repeats the request, which runs again. A call with an idempotency key, a task and a call that is handed over run once, always.
        """
        again = [pair for pair in pairwise(entries) if not self._is_forgotten(*pair)]
        self.excused["another run, its first one lost in a failover"] += max(0, len(entries) - 1) - len(again)
        # A client that leaves does not count its POST.
        if len(again) >= (max(1, call.posts) if call.era == "2025" else 1):
            return False
        return call.tool in REPEATABLE or all(self._was_cut(call, *pair) for pair in again)

    def _is_forgotten(self, run: Entry, following: Entry) -> bool:
        """True if a failover may have lost that a call was begun, or its end."""
        return self._is_lost(run.at) or any(
            self._is_lost(entry.at)
            for entry in self._journal
            if entry.what == "end" and entry.nonce == run.nonce and run.at < entry.at < following.at
        )

    def _was_cut(self, call: Call, run: Entry, following: Entry) -> bool:
        """True if the client cut the end of a run before the next one: an answer to a connection that looked alive, or −31002 of a dead replica."""
        cuts = [at for at in call.left if run.at < at < following.at]
        mine = [entry for entry in self._journal if entry.replica == run.replica and run.at < entry.at]
        ended = min(
            (one.at for one in mine if one.what == "end" and one.nonce == run.nonce), default=math.inf
        )
        left = min(
            (one.at for one in mine if one.what == "left" and one.claim == run.claim), default=math.inf
        )
        if ended < min(left, following.at):
            return bool(cuts)
        if run.replica not in self._lives:
            return bool(cuts) and self._troubled(run.at, following.at)
        return any(_hurt(self._lives[run.replica], run.at, at) for at in cuts)

    # I5 and I7: counts are right

    def _counters(self, starts: dict[str, list[Entry]]) -> None:
        begun: Counter[str] = Counter()
        acknowledged: Counter[str] = Counter()
        for call in self._notes.calls:
            if call.tool == "bump":
                begun[call.session] += len(starts[call.nonce])
                acknowledged[call.session] += bool(call.text) and not self._is_lost(call.ended)
        for session, value in self._notes.counters.items():
            if not acknowledged[session] <= value <= begun[session]:
                self._violate(
                    "I5",
                    f"{session} counts {value}: {acknowledged[session]} acknowledged, {begun[session]} begun",
                )
        for at, what in self._notes.crowds:
            if not self._troubled(at - self._plan.lease - 2 * LATE, at):
                self._violate("I7", what)
        reached = max(self._notes.most_asked.values(), default=CREDIT)
        if reached < CREDIT - 1:
            self._violate("I7", f"only {reached} of {CREDIT} asks were ever outstanding together")

    # I8: one closing, never early, not late

    def _closings(self) -> None:
        closed: dict[str, list[Entry]] = defaultdict(list)
        for entry in self._journal:
            if entry.what == "closed":
                closed[entry.session].append(entry)
        for session, entries in closed.items():
            reasons = {entry.note for entry in entries}
            if len(reasons) > 1 and not self._is_lost(entries[0].at):
                self._violate("I8", f"{session} was closed for {sorted(reasons)}")
            deleted = self._notes.deleted.get(session)
            if reasons == {"deleted"} and deleted is None:
                self._violate("I8", f"{session} was deleted without a request")
        # Only a back of functions writes closings down. With others, data that outlives its session is found in the database (I9).
        for leaver in self._notes.leavers if BACKS[self._plan.back].knows_clients else ():
            self._left(leaver.session, leaver.at, closed[leaver.session])

    def _left(self, session: str, left: float, closed: list[Entry]) -> None:
        """A session that was left lives for the grace after its last break or exchange, and not much longer."""
        settled = [entry.at for entry in self._journal if entry.session == session and entry.what == "start"]
        last = max([left, *settled])
        if not closed:
            if not self._is_lost(self._notes.sessions.get(session, 0.0)):
                self._violate("I8", f"{session} was left and never closed")
            return
        after = closed[0].at - last
        slack = self._plan.lease + 2 + 3 + LATE + self._plan.events * self._plan.interval * 1.5
        slack += sum(one.over - one.began + self._plan.lease for one in self._history.outages)
        # A reader at a frozen replica counts as broken when the lease has ended.
        early = (
            self._plan.stop_seconds
            if any(_hurt(life, left - self._plan.stop_seconds, left) for life in self._lives.values())
            else 0.5
        )
        if self._is_lost(last):
            # It counts from its last sign that was not lost.
            early = LEAVER_TELLS + 1 + LATE
        if not self._plan.grace - early <= after <= self._plan.idle + slack:
            self._violate("I8", f"{session} was closed {after:.1f} s after it was left")

    # Memory, I9

    def _memory(self) -> None:
        self.most_memory = max((entry.value for entry in self._journal if entry.what == "rss"), default=0.0)
        if self.most_memory > RSS:
            self._violate("I9", f"a replica took {self.most_memory / 1e6:.0f} MB")

    # I12: the loop turns, and the door is open

    def _measured_lags(self) -> list[float]:
        frozen = [(*stop, life.name) for life in self._lives.values() for stop in life.stopped]
        return [
            entry.value
            for entry in self._journal
            if entry.what == "lag"
            and not any(name == entry.replica and begin <= entry.at <= end + 1 for begin, end, name in frozen)
        ]

    def _availability(self) -> None:
        for asked, at in self._notes.unavailable:
            # A replica that wakes without its lease refuses work until it has another; and a request may have waited
            # for the home of its session.
            if not self._troubled(min(asked, at - LATE), at) and not any(
                _leaves(life, at) for life in self._lives.values()
            ):
                self._violate("I12", f"a replica sent a call away at {at:.3f}, and nothing was wrong")


def _failed(call: Call) -> bool:
    return call.code is None and bool(call.answer["result"].get("isError"))


def _leaves(life: Life, at: float) -> bool:
    """True if a process was stopping in order then and refused new calls."""
    return life.leaving is not None and life.leaving <= at and (life.ended is None or at < life.ended + 1)


def _hurt(life: Life, begin: float, end: float) -> bool:
    """True if a process was killed or frozen in this time. One that ends in order finishes its calls first: that excuses nothing."""
    if life.leaving is None and life.ended is not None and begin - 1 < life.ended < end:
        return True
    return any(stopped < end and (begin < gone_on or not gone_on) for stopped, gone_on in life.stopped)


def main(paths: list[str]) -> int:
    """Judge files of trials again; 0 only if each of them is valid and clean."""
    failed = 0
    for path in paths:
        history = read_history(Path(path))
        judge = Judge(history)
        found = judge.judge()
        calls = history.notes.calls
        events = sum(len(call.received) for call in calls)
        verdict = "valid" if judge.is_valid else "INVALID: fewer than 95 % of the planned faults happened"
        print(
            f"{path}: {len(calls)} calls, {events} messages, {len(history.journal)} entries of journals, {verdict}, {len(found)} violations"
        )
        for violation in found:
            print(f"  {violation.law} {violation.what}")
        failed += bool(found) or not judge.is_valid
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
