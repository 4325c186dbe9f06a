"""The back in front of another server: a URL, a program, or a Python object of another framework.

    client ──▶ front ──▶ engine ──▶ ProxyBack ──▶ Upstream ──▶ Connection ──▶ the server behind us
                          ▲                          │
                          └── asks, notifications ───┘

`Remote`, `Process` and `Hosted` (one module each in `server`) differ only in how they connect. Everything else is here:

    back.py          the `Back` contract: which upstream serves a client, and the requests that we answer ourselves
    upstreams.py     one upstream for each session, or for each principal; how many, and when they end
    upstream.py      one conversation with the server: its calls, notifications, requests and restarts
    call.py          one exchange and its upstream request: progress, deadline, questions to the client
    questions.py     which calls a question can belong to, where it is asked, and when it ends
    lists.py         the server's lists, kept in memory until they change
    headers.py       the headers of calls: those of the client, and those that repeat parameters (2026-07-28)
    passing.py       the headers of a client that the server behind us receives
    restoring.py     the next session at the server after it has lost ours
    turns.py         how many calls of one upstream run at once
    subscriptions.py the resources that clients subscribed to, and the subscription at the server, by its era
    translation.py   messages of one era in the form of the other (pure)
"""
