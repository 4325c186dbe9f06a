"""The rules of a session: plain functions over its document. No I/O, no await, no clock; time and limits are passed in.

    document.py   Document: header numbers, and tables of exchanges, ids, logs, asks …
    life.py       when a session ends, signs of its client, closing, subscriptions, its home
    calls.py      claim, settle, keep, cancel, give_back, reap
    streams.py    open_stream, append; which log loses events when there is no room
    readers.py    attach, detach, probe, vouch
    asks.py       ask, answer, withdraw
    turns.py      turn, hold_turn, pass_turn

Documents of their own have `state.py` (fields with versions), `areas.py` (names for them) and `tasks.py`.

How a rule works. It reads and changes the document with ordinary operations, and returns the result of the command. It
names what the store has to do besides in `Document.told`: wake-ups, and changes of indexes. It decides before it
changes anything: a rule that raises has changed nothing. A rule depends on nothing but its arguments, so it can be
applied again to a newer document.

Who applies them. `stores/base` has the commands: load the document, apply the rule, commit. The memory store
applies a rule to the document itself, so a plain call costs no more than the rule. Decision 21 has the reasons, and how
a store that several processes share follows.

Sent again. A command whose reply was lost is sent again, and must count once. A claim finds its own stream, an end
finds the tag of its terminal message or no exchange although its fence was given, an append finds its tag as the newest
one; the other rules set the same values again. (A shared store recognises the whole commit.)
"""
