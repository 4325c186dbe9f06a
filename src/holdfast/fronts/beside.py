"""A thing that runs beside a front: the admin surface, or what answers its questions in a worker."""

from contextlib import AbstractAsyncContextManager

Beside = AbstractAsyncContextManager[None]
"""Runs in the loop of the front, until the drain has ended."""
