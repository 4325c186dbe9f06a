"""Audit: refusals that concern security, as events `audit.*` for operators who watch for attacks.

Each refusal of a token, a Host, an Origin, an anonymous client, or of a session that is another principal's is one
event, up to a rate for each address. The client learns nothing from it: that a session exists is found out after the
answer is decided, and only for the log. No event has a token, a session id or anything of a body.
"""

from holdfast.auth import Principal
from holdfast.core.rates import Rates
from holdfast.engine.engine import Engine
from holdfast.engine.sessions import session_key
from holdfast.errors import StoreError
from holdfast.fronts.http.connection import Connection


class Audit:
    """Reports refusals to the observer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rates = Rates(self._engine.clock.now())

    def refused(self, what: str, connection: Connection) -> None:
        """Report the refusal of a request. `what` is the reason: token, host, origin, session or anonymous."""
        request = connection.request
        address = request.client or "local"
        held = self._rates.admit((what, address), self._engine.clock.now())
        if held is None:
            return
        facts: dict[str, object] = {"address": address, "held_back": held} if held else {"address": address}
        if what == "session":
            key = session_key(request.head.text(b"mcp-session-id"))
            self._engine.spawn(self._foreign(key, connection.principal, facts))
        else:
            self._engine.observer.note(f"audit.{what}_refused", **facts)

    async def _foreign(self, key: str, principal: Principal | None, facts: dict[str, object]) -> None:
        """Report a request for a session of another principal. A session that does not exist is no attack."""
        try:
            if await self._engine.store.holder(key) is None:
                return
        except StoreError:
            return
        subject = principal.subject if principal is not None else "anonymous"
        self._engine.observer.note("audit.session_refused", session=key[:8], subject=subject, **facts)
