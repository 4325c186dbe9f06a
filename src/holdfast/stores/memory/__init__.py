"""The memory store: sessions, streams, asks, state and tasks in the dicts of one process.

It is the reference for every other store: where the contract and the tests do not decide, other stores behave like this
one (`tests/properties` compares them under random commands).

    MemoryStore ── store.py           sessions, exchanges, streams: the steps, and the other indexes
     ├─ MemorySession ── session.py   one session: its clocks (`rules.SessionClock`), ids, turns, asks
     │   └─ MemoryExchange            one exchange or the standalone stream: claim, fence, reader, `core.stream.Log`
     ├─ SessionTable ── sessions.py   the open sessions, and when each may be due
     ├─ asks.py, readers.py, turns.py, subscriptions.py, tasks.py, state.py   the calls of one subject each
     ├─ Lingering ── lingering.py     streams of closed sessions that are still being read
     └─ OneProcess ── stores/base     leases, inbox, announcements, secrets of a single process

Why each call is atomic. No method awaits, so the event loop runs each method to its end before another one begins.
Other stores need transactions or scripts for this; here the order of the statements is enough. For the same reason a
method must decide before it changes anything: an exception in the middle would leave half a change.

Because no call waits, `open`, `claim` and `settle` also exist as plain functions (`at_once`): a session and a plain call
need no task.

How the store finds the sessions that are due. Every session has a hint, the earliest time at which it can be due, and the heap
`_due` holds one pair (hint, key) for it. A hint may be too early, never too late: activity only moves a deadline away,
and a call that moves it nearer (a break, a settle) pushes a new hint. `sweep` pops the hints that have passed, computes
the real deadline, and closes the session or pushes the next hint. So a call that only postpones the deadline, which is
nearly every call, changes no index. The pairs of closed sessions are removed when they outnumber those of open sessions.

How bytes are counted. The store keeps the sum of log bytes for each session and for all sessions, because every append
checks both. `_finished` lists the complete streams of all sessions in the order of their ends: the store forgets the oldest
first when it is full.
"""

from holdfast.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
