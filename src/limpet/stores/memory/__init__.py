"""The memory store: sessions, streams, asks, state and tasks in the dicts of one process.

It is the reference for every other store: where the contract and the tests do not decide, other stores behave like this
one (`tests/properties` compares them under random commands).

    MemoryStore ── store.py                     the store object, and the shortcut for plain calls
     ├─ SessionCommands ── stores/base          the commands of a session: load, rule, commit
     │   └─ core/rules                          the rules
     ├─ MemoryBackend ── backend.py             the documents, and their indexes
     │   ├─ MemoryDocument                      one session, with its logs (`core.stream.Log`)
     │   └─ Lingering ── lingering.py           streams of closed sessions that are still being read
     ├─ state.py, tasks.py                      state and tasks
     └─ OneProcess ── stores/base               leases, inbox, announcements, secrets of a single process

Why each call is atomic. No call waits for anything, so the event loop runs each of them to its end before another one
begins. A rule changes the document itself. Other stores need transactions or scripts for this.

Because no call waits, `open`, `claim` and `settle` also exist as plain functions (`at_once`): a session and a plain
call need no task, and a plain call costs the two rules and nothing else.

How the store finds the sessions that are due. The heap `_due` holds one pair (hint, key) for each session;
`core/rules/life.py` explains the hints. A call that only postpones a deadline, which is nearly every call, changes no
index. The pairs of closed sessions are removed when they outnumber those of open sessions.

How bytes are counted. A document has the sum of its log bytes, the store the sum of all documents, because every append
checks both. `_finished` lists the complete streams of all sessions in the order of their ends: the store forgets the
oldest first when it is full.
"""

from limpet.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
