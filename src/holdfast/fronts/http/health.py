"""Health for balancers and orchestrators: alive, and ready for new work. Neither opens a session.

A probe connects to an address, not to a name, so the Host header is not checked here. The answer is a single word.
"""

from contextvars import Context
from typing import Final

from holdfast.engine.engine import Engine
from holdfast.errors import StoreError
from holdfast.fronts.http.answer import Answer, retry_after

LIVE, READY = "/healthz", "/readyz"
_NO_STORE: Final = b"the store takes no new work\n"


def _word(status: int, text: bytes) -> Answer:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(text)),
        (b"cache-control", b"no-store"),
    ]
    return Answer(status, headers if status == 200 else [*headers, retry_after()], text)  # noqa: PLR2004


async def health(engine: Engine, path: str) -> Answer:
    """Answer a probe: live while the loop runs; ready unless it is stopping or its store accepts no new work."""
    if path == LIVE:
        return _word(200, b"alive\n")
    if engine.leaving or engine.draining:
        return _word(503, b"draining\n")
    try:
        await engine.ensure_started(Context())
    except StoreError:
        return _word(503, _NO_STORE)
    return _word(200, b"ready\n") if await engine.readiness.is_writable() else _word(503, _NO_STORE)
