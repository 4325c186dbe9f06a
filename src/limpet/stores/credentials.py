"""Credentials that a function gives: for passwords that expire, such as the tokens of a cloud."""

from collections.abc import Awaitable, Callable

Credentials = Callable[[], Awaitable[tuple[str, str]]]
"""Called for each new connection; returns the user and the password. The thread that renews the lease calls it too,
on a loop of its own."""
