"""Sessions of a store that several processes share: cached documents, drafts, commits. Decision 21 has the reasons.

SharedSessions ── sessions.py     applies rules to drafts of cached documents, combines commands, retries
 ├─ Draft ── draft.py             a document that notes what a rule has read and written
 ├─ fields.py                     documents as named fields
 ├─ Commit ── commit.py           the one value that changes a session
 └─ Shelf ── shelf.py             what a backend has to do: load, commit, create, erase, read
"""
