"""The notes of a trial's clients, and the parameters of a trial."""

import time
from collections import Counter
from typing import Any

from msgspec import Struct, field

from holdfast.config import Limits, Settings, Times

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
    kills: int
    stops: int
    stop_seconds: float
    redis_restarts: int
    redis_away: float
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
        )
        return Settings(limits=Limits(asks=CREDIT), times=times)


class Violation(Struct, frozen=True):
    """A broken invariant."""

    law: str
    what: str
    at: float


class Call(Struct, kw_only=True):
    """One request, from its first byte to its answer, over all its connections."""

    nonce: str
    principal: str
    session: str
    id: int | str
    tool: str
    arguments: dict[str, Any]
    body: bytes = b""
    began: float = 0.0
    ended: float = 0.0
    last_id: str = ""
    stream: str = ""
    seq: int = 0
    events: int = 0
    steps: int = 0
    gaps: int = 0
    answer: Any = None
    posts: int = 0
    resumes: int = 0
    cuts: int = 0
    refused: int = 0
    """Repeats turned away because the first was still in flight."""
    left: list[float] = field(default_factory=list)
    """When the client cut its connections."""
    took: list[float] = field(default_factory=list)

    @property
    def mark(self) -> str:
        """The prefix of every payload of this call."""
        return f"{self.principal}/{self.session}/{self.nonce}"

    @property
    def code(self) -> int | None:
        """The error's code, if it ended with one."""
        code: int | None = self.answer["error"]["code"] if self.answer and "error" in self.answer else None
        return code


class Leaver(Struct, frozen=True):
    """A session that its client left without a word."""

    session: str
    at: float


class Notes:
    """The events of a trial as its clients saw them."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.calls: list[Call] = []
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.unavailable: list[float] = []
        """When a replica said 503."""
        self.secrets: set[str] = set()
        """Session ids and tokens: in no log."""
        self.sessions: dict[str, str] = {}
        """Key's beginning to principal."""
        self.duplicates: dict[str, tuple[str, int]] = {}
        """A duplicate's nonce: the nonce of the call it imitates, and the status it got."""
        self.deleted: dict[str, float] = {}
        self.leavers: list[Leaver] = []
        self.counters: dict[str, tuple[int, int]] = {}
        """By session: increments that were acknowledged, and the counter's value at the end."""
        self.most_asked: Counter[str] = Counter()
        """By session: asks outstanding at once, at most."""
        self.crowds: list[tuple[float, str]] = []
        """When more asks seemed to be outstanding than may be. A call that was lost no longer counts, but is replayed."""
        self.latencies: list[float] = []

    def violate(self, law: str, what: str) -> None:
        """Write a violation down, and say so at once."""
        self.violations.append(Violation(law, what, time.time()))
        if len(self.violations) <= 20:
            print(f"{time.time():.3f} {law} violated: {what}", flush=True)
