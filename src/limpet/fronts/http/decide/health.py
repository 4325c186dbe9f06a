"""Health for balancers and orchestrators: alive, and ready for new work. Neither opens a session.

A probe connects to an address, not to a name, so the Host header is not checked here. The answer is one line: a word,
or the reason why new work is not accepted.
"""

from contextvars import Context

from limpet.engine.engine import Engine
from limpet.errors import LifespanEnded, StoreError
from limpet.fronts.http.write.answer import Answer, retry_after

LIVE, READY = "/healthz", "/readyz"


def _line(status: int, text: str) -> Answer:
    body = f"{text}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    return Answer(status, headers if status == 200 else [*headers, retry_after()], body)  # noqa: PLR2004


async def health(engine: Engine, path: str, trouble: str = "") -> Answer:
    """Answer a probe: live while the loop runs; ready if a claim would be accepted, and otherwise the reason.

    `trouble`: the authorization server that fails. It fails for all replicas, and clients whose tokens are known are
    served: so the process is ready, and the line says it.
    """
    if path == LIVE:
        return _line(200, "alive")
    if engine.failure is not None:
        return _line(503, str(engine.failure))
    if engine.leaving or engine.draining:
        return _line(503, "draining")
    try:
        await engine.ensure_started(Context())
    except (StoreError, LifespanEnded) as error:
        return _line(503, engine.readiness.found(str(error)))
    obstacle = await engine.readiness.obstacle()
    if obstacle:
        return _line(503, obstacle)
    return _line(200, f"ready, but no new token can be checked: {trouble} fails" if trouble else "ready")
