"""The verdict: invariants I1 to I12 over the notes of clients, the notes of replicas and the data in the database."""

import math
import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Final

from holdfast.errors import OUTCOME_UNKNOWN
from tests.chaos.fleet import Fleet, Life
from tests.chaos.notes import CREDIT, Call, Notes, Plan
from tests.chaos.replica import Entry

LATE: Final = 3.0
"""Seconds that a busy machine may add to any bound."""
_FAILED: Final = re.compile(
    r"^Traceback|^.*\.failed (?!.*error=\"(SessionGone|StoreUnavailable): ).*$",
    re.MULTILINE,
)
"""Lines that no log may have. A handler may log that the store or its session is gone."""
RSS: Final = 400 * 1024 * 1024
REPEATABLE: Final = {"bump", "quick", "counter"}
"""Tools answered with plain JSON: an answer lost on its way may be asked for again, and is another call."""


class Judge:
    """Looks at everything once the trial is over."""

    def __init__(self, plan: Plan, fleet: Fleet, notes: Notes) -> None:
        self._plan = plan
        self._fleet = fleet
        self._notes = notes
        self._journal = fleet.journal()
        self._lives = {life.name: life for life in fleet.lives()}
        self.lags = self._measured_lags()
        # A busy machine stops a process as SIGSTOP does.
        for entry in self._journal:
            if entry.what == "starved":
                self._lives[entry.replica].stopped.append((entry.at - entry.value, entry.at))
        self.reaped_after: list[float] = []
        self.most_memory = 0.0

    def judge(self) -> None:
        """Look at every invariant that a trial can show."""
        starts: dict[str, list[Entry]] = defaultdict(list)
        for entry in self._journal:
            if entry.what == "start":
                starts[entry.nonce].append(entry)
        self._ends(starts)
        self._starts(starts)
        self._counters(starts)
        self._closings()
        self._memory()
        self._logs()
        self._availability()

    # I1: one end each, and a correct one

    def _ends(self, starts: dict[str, list[Entry]]) -> None:
        for call in self._notes.calls:
            if call.answer is None:
                continue
            if call.code == OUTCOME_UNKNOWN:
                self._lost(call, starts[call.nonce])
            elif call.code is not None and not self._troubled(call.began, call.ended):
                self._notes.violate("I1", f"{call.nonce} ended with {call.answer['error']} for no reason")
            elif _failed(call) and not self._outage(call.began, call.ended):
                self._notes.violate("I1", f"{call.nonce} failed without an outage: {call.answer}")

    def _lost(self, call: Call, starts: list[Entry]) -> None:
        """A call may be lost only with its replica, and its client receives the error in time."""
        self._notes.counts["outcome unknown"] += 1
        lives = [self._lives[entry.replica] for entry in starts]
        # Without a start its replica ended between claim and handler, and no journal names that replica.
        suspects = lives or list(self._lives.values())
        hurt = any(_hurt(life, call.began, call.ended) for life in suspects)
        if hurt or self._outage(call.began, call.ended):
            for life in lives:
                if life.ended is not None and call.began < life.ended < call.ended:
                    self._reaped(call, life.ended)
        else:
            ran = [life.name for life in lives]
            self._notes.violate("I1", f"{call.nonce} was given up although {ran} lived")

    def _reaped(self, call: Call, died: float) -> None:
        after = call.ended - died
        self.reaped_after.append(after)
        others = any(_hurt(life, died, call.ended) for life in self._lives.values() if life.ended != died)
        # For one lease after an outage no replica is declared dead.
        if (
            after > self._plan.lease + 2 + LATE
            and not others
            and not self._outage(died - self._plan.lease, call.ended)
        ):
            self._notes.violate("I1", f"{call.nonce} heard {after:.1f} s late that its replica is dead")

    def _outage(self, begin: float, end: float) -> bool:
        return any(began - 1 < end and begin < over + LATE for began, over in self._fleet.outages)

    def _troubled(self, begin: float, end: float) -> bool:
        return self._outage(begin, end) or any(_hurt(life, begin, end) for life in self._lives.values())

    # I4: at most once

    def _starts(self, starts: dict[str, list[Entry]]) -> None:
        claims = Counter(entry.claim for entries in starts.values() for entry in entries)
        for claim, times in claims.items():
            if times > 1:
                self._notes.violate("I4", f"claim {claim} was started {times} times")
        ends = {entry.nonce: entry.at for entry in reversed(self._journal) if entry.what == "end"}
        calls = {call.nonce: call for call in self._notes.calls}
        for nonce, entries in starts.items():
            call = calls.get(nonce)
            if nonce in self._notes.duplicates:
                original = calls[self._notes.duplicates[nonce][0]]
                # Once the original has ended, its id is free: the duplicate is a call of its own.
                over = min(ends.get(original.nonce, math.inf), original.ended or math.inf)
                late = [entry for entry in entries[nonce == original.nonce :] if entry.at < over]
                if late and not original.code:
                    self._notes.violate("I4", f"{nonce} ran although its id was in flight")
            elif call is not None and not self._may_run(call, entries):
                when = [f"{entry.replica} {entry.at:.3f}" for entry in entries]
                cuts = [f"{at:.3f}" for at in call.left]
                self._notes.violate(
                    "I4", f"{nonce} ran {len(entries)} times for {call.posts} posts: {when}, cut at {cuts}"
                )

    def _may_run(self, call: Call, entries: list[Entry]) -> bool:
        """Once, and again for each repeat after an end that the client did not want to read.

        An answer, or −31002, counts as received when it is written to a connection which, as far as its replica knows, the client has not
        closed (`core/fate.py`). The client of a trial may read nothing of it and cut the connection. Under load the replica learns it late. Then
        the client repeats the request, which runs again.
        """
        # A client that leaves does not count its POST.
        if len(entries) > max(1, call.posts):
            return False
        return call.tool in REPEATABLE or all(self._was_cut(call, *pair) for pair in pairwise(entries))

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
        return any(_hurt(self._lives[run.replica], run.at, at) for at in cuts)

    # I5 and I7: counts are right

    def _counters(self, starts: dict[str, list[Entry]]) -> None:
        bumps = {call.nonce: call.session for call in self._notes.calls if call.tool == "bump"}
        begun: Counter[str] = Counter()
        for nonce, session in bumps.items():
            begun[session] += len(starts[nonce])
        for session, (acknowledged, value) in self._notes.counters.items():
            if not acknowledged <= value <= begun[session]:
                self._notes.violate(
                    "I5", f"{session} counts {value}: {acknowledged} acknowledged, {begun[session]} begun"
                )
        for at, what in self._notes.crowds:
            if not self._troubled(at - self._plan.lease - 2 * LATE, at):
                self._notes.violate("I7", what)
        reached = max(self._notes.most_asked.values(), default=CREDIT)
        if reached < CREDIT - 1:
            self._notes.violate("I7", f"only {reached} of {CREDIT} asks were ever outstanding together")

    # I8: one closing, never early, not late

    def _closings(self) -> None:
        closed: dict[str, list[Entry]] = defaultdict(list)
        for entry in self._journal:
            if entry.what == "closed":
                closed[entry.session].append(entry)
        for session, entries in closed.items():
            reasons = {entry.note for entry in entries}
            if len(reasons) > 1:
                self._notes.violate("I8", f"{session} was closed for {sorted(reasons)}")
            deleted = self._notes.deleted.get(session)
            if reasons == {"deleted"} and deleted is None:
                self._notes.violate("I8", f"{session} was deleted without a request")
        for leaver in self._notes.leavers:
            self._left(leaver.session, leaver.at, closed[leaver.session])

    def _left(self, session: str, left: float, closed: list[Entry]) -> None:
        """A session that was left lives for the grace after its last break or exchange, and not much longer."""
        settled = [entry.at for entry in self._journal if entry.session == session and entry.what == "start"]
        last = max([left, *settled])
        if not closed:
            self._notes.violate("I8", f"{session} was left and never closed")
            return
        after = closed[0].at - last
        slack = self._plan.lease + 2 + 3 + LATE + self._plan.events * self._plan.interval * 1.5
        slack += sum(end - begin + self._plan.lease for begin, end in self._fleet.outages)
        # A reader at a frozen replica counts as broken when the lease has ended.
        early = (
            self._plan.stop_seconds
            if any(_hurt(life, left - self._plan.stop_seconds, left) for life in self._lives.values())
            else 0.5
        )
        if not self._plan.grace - early <= after <= self._plan.idle + slack:
            self._notes.violate("I8", f"{session} was closed {after:.1f} s after it was left")

    # I9: bounded, and nothing stays

    def _memory(self) -> None:
        self.most_memory = max((entry.value for entry in self._journal if entry.what == "rss"), default=0.0)
        if self.most_memory > RSS:
            self._notes.violate("I9", f"a replica took {self.most_memory / 1e6:.0f} MB")
        left = list(self._fleet.database.left(self._notes.sessions))
        for name, fault in left:
            if fault:
                self._notes.violate("I9", f"the key {name} {fault}")
        self._notes.counts["keys left"] = len(left)

    # I11: nothing secret in logs

    def _logs(self) -> None:
        for name, text in self._fleet.logs().items():
            for secret in self._notes.secrets:
                if secret in text:
                    self._notes.violate("I11", f"the log of {name} shows a session id or a token")
            if "nonce-" in text:
                line = next(line for line in text.splitlines() if "nonce-" in line)
                self._notes.violate("I11", f"the log of {name} shows a payload: {line[:200]}")
            failed = _FAILED.search(text)
            if failed is not None:
                self._notes.violate("I12", f"{name} has failed inside: {text[failed.start() :][:1500]}")

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
        for at in self._notes.unavailable:
            # A replica that wakes without its lease refuses work until it has another.
            if not self._troubled(at - LATE, at) and not any(
                _leaves(life, at) for life in self._lives.values()
            ):
                self._notes.violate("I12", f"a replica sent a call away at {at:.3f}, and nothing was wrong")


def _failed(call: Call) -> bool:
    return call.code is None and bool(call.answer["result"].get("isError"))


def _leaves(life: Life, at: float) -> bool:
    """True if a process was stopping in order then and refused new calls."""
    return life.leaving is not None and life.leaving <= at and (life.ended is None or at < life.ended + 1)


def _hurt(life: Life, begin: float, end: float) -> bool:
    """True if a process was killed or frozen in this time."""
    if life.ended is not None and begin - 1 < life.ended < end:
        return True
    return any(stopped < end and (begin < gone_on or not gone_on) for stopped, gone_on in life.stopped)
