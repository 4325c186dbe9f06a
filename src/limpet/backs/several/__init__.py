"""The back of a server that is made of others: one address, several servers.

    client ──▶ engine ──▶ SeveralBack ──┬──▶ functions of this process        (NativeBack)
                                        ├──▶ names of `github` ──▶ ProxyBack ──▶ a connection of this session
                                        └──▶ names of `files`  ──▶ ProxyBack ──▶ a connection of this session

It is a back over backs: the engine, the fronts and the stores know nothing of it. Each member is a complete back with
its own connections, questions, cancellations, progress and restarts, behind a wrapper that shows its components under
the names that clients see (`core/names.py`). So one thing is left to decide here: which members a request is for.

    request                                  goes to
    ─────────────────────────────────────    ─────────────────────────────────────────────────────────────────────
    one that names a component               the member that has it (`routes.py`)
    a list                                   all; the pages are merged (`lists.py`, `pages.py`)
    initialize, server/discover              all; capabilities and instructions are joined (`description.py`)
    logging/setLevel, client notifications   all
    subscriptions/listen                     all, each with its own resources
    one for a task                           the member whose name the id begins with (`task_ids.py`)
    an unknown one                           no member: it is refused

What goes to all waits for each member a short time only (`members.py`). A member that is down or late is left out of
lists, and of nothing else; connections that a session lacks are made in the background (`presence.py`).

All connections of a session are in one process, its home, because one member that needs a home is enough for that.
"""
