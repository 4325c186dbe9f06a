"""Sessions of a store that several processes share: cached documents, drafts, commits. Decision 21 has the reasons.

SharedSessions ── sessions.py     applies rules to drafts of cached documents, combines commands, retries
 ├─ SharedDocument ── draft.py    a document that makes commits: it notes what rules read and change
 ├─ fields.py                     documents as named fields
 ├─ Commit ── commit.py           the one value that changes a session
 └─ Shelf ── shelf.py             what a backend has to do: load, commit, create, erase, read

ServerStore ── server.py          a store on a server: name, clock, lease, wake-ups (Redis, PostgreSQL)
"""
