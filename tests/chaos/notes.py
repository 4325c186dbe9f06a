"""The notes of a trial's clients, and the parameters of a trial."""

import time
from typing import Any

from msgspec import Struct, field

from limpet.config import Limits, Settings, Times

CREDIT = 8
"""Asks outstanding per session: less than one fanout wants."""
FANOUT = 12


class Plan(Struct, frozen=True, kw_only=True):
    """How much of everything, all of it from one seed."""

    seed: int
    sessions: int
    requests: int
    """Calls with events per session; a quarter as many of other kinds come on top."""
    events: int
    interval: float
    """Seconds between two events of a call, on average."""
    cuts: int
    faults: dict[str, int] = {}
    """How many of each kind of `faults.FAULTS`."""
    stop_seconds: float = 3.5
    """How long a replica stands still: longer than the lease."""
    away: float = 1.0
    """How long the database is away when it is restarted."""
    store: str = "redis"
    """One of `databases.KINDS`."""
    back: str = "native"
    """One of `backs.BACKS`."""
    workers: int = 0
    """0: replicas behind a balancer. More: one `limpet serve --workers`."""
    moderns: int = 0
    """Clients of 2026-07-28."""
    modern_calls: int = 0
    """Calls of each of them."""
    duplicates: float = 0.05
    leavers: int = 6
    principals: int = 20
    lanes: int = 2
    """Calls of one session side by side."""
    lease: float = 2.0
    drain: float = 5.0
    grace: float = 20.0
    stream_after: float = 0.1
    patience: float = 60.0
    """Longer than any fault: a call without its end by then has none."""
    fault_seconds: float
    """The faults are spread over this long."""
    load_seconds: float = 0.0
    """No call begins later than this; 0: clients make all their calls, without a limit of time."""

    @property
    def imitations(self) -> int:
        """How many duplicates that is."""
        return round(self.sessions * self.requests * self.duplicates)

    @property
    def idle(self) -> float:
        """How long a session lives after its client disappeared unnoticed."""
        return self.grace + 3

    def settings(self) -> Settings:
        """Return the settings of the replicas."""
        times = Times(
            grace=self.grace,
            idle=self.idle,
            lease=self.lease,
            lease_renewal=self.lease / 4,
            loop_patience=self.lease * 3,
            sweep=0.5,
            keep_alive=2.0,
            drain=self.drain,
            stream_after=self.stream_after,
            retry=(0.05, 0.2),
            task=self.patience * 3,
        )
        return Settings(limits=Limits(asks=CREDIT), times=times)


class Violation(Struct, frozen=True, kw_only=False):
    """A broken invariant."""

    law: str
    what: str
    at: float


class Received(Struct, frozen=True, array_like=True):
    """One message, as its client received it."""

    at: float
    id: str
    """The id of its event; empty without one."""
    what: str
    """progress, ask, answer or other."""
    text: str
    """Whose it is, or, of an answer, the id that it answers."""


class Call(Struct, kw_only=True, tag="call", tag_field="kind"):
    """One request, from its first byte to its answer, over all its connections."""

    nonce: str
    session: str
    id: int | str
    tool: str
    mark: str
    """The prefix of every payload of this call: principal, session and nonce, where the server knows all of them."""
    steps_wanted: int = 0
    """Its events, if it reaches its end."""
    era: str = "2025"
    began: float = 0.0
    ended: float = 0.0
    asked: float = 0.0
    """When its last request was sent."""
    answer: Any = None
    gave_up: str = ""
    """Why its client stopped waiting; empty if it did not."""
    is_left: bool = False
    """Its client left on purpose."""
    posts: int = 0
    resumes: int = 0
    refused: int = 0
    """Repeats turned away because the first was still in flight."""
    left: list[float] = field(default_factory=list)
    """When the client cut its connections."""
    received: list[Received] = field(default_factory=list)
    """Every message, in the order of arrival."""
    gaps: list[str] = field(default_factory=list)
    """The comments about lost events."""

    @property
    def last_id(self) -> str:
        """The position from which it is resumed."""
        return next((one.id for one in reversed(self.received) if one.id), "")

    @property
    def steps(self) -> int:
        """How many of its events have arrived."""
        return sum(one.what == "progress" for one in self.received)

    @property
    def code(self) -> int | None:
        """The error's code, if it ended with one."""
        code: int | None = self.answer["error"]["code"] if self.answer and "error" in self.answer else None
        return code

    @property
    def text(self) -> str:
        """The text of its result; empty without one."""
        content = (self.answer or {}).get("result", {}).get("content") or [{}]
        return str(content[0].get("text", ""))

    @property
    def state(self) -> str:
        """How far it is, for reports."""
        return (
            f"{self.posts} posts, {self.resumes} resumes, {len(self.left)} cuts, {self.refused} refused, "
            f"{self.steps} steps, at {self.last_id or 'no event'}"
        )


class Leaver(Struct, frozen=True):
    """A session that its client left without a word."""

    session: str
    at: float


class Notes(Struct, kw_only=True, tag="notes", tag_field="kind"):
    """The events of a trial as its clients saw them."""

    violations: list[Violation] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    unavailable: list[tuple[float, float]] = field(default_factory=list)
    """When a request was sent, and when a replica said 503: it may have waited for another replica."""
    secrets: list[str] = field(default_factory=list)
    """Session ids and tokens: in no log."""
    sessions: dict[str, float] = field(default_factory=dict)
    """Key's beginning to the time of its opening."""
    duplicates: dict[str, tuple[str, int]] = field(default_factory=dict)
    """A duplicate's nonce: the nonce of the call it imitates, and the status it got."""
    deleted: dict[str, float] = field(default_factory=dict)
    leavers: list[Leaver] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    """By session: the counter's value at the end."""
    most_asked: dict[str, int] = field(default_factory=dict)
    """By session: asks outstanding at once, at most."""
    crowds: list[tuple[float, str]] = field(default_factory=list)
    """When more asks seemed to be outstanding than may be. A call that was lost no longer counts, but is replayed."""

    def count(self, name: str) -> None:
        """Count something that happened."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def status(self, name: str) -> None:
        """Count an answer of the server."""
        self.statuses[name] = self.statuses.get(name, 0) + 1

    def violate(self, law: str, what: str) -> None:
        """Write a violation down, and say so at once."""
        self.violations.append(Violation(law, what, time.time()))
        if len(self.violations) <= 20:
            print(f"{time.time():.3f} {law} violated: {what}", flush=True)
