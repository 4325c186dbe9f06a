"""A response to one request of a probe, as far as it was read."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

EVENT_STREAM: Final = "text/event-stream"
NO_ANSWER: Final = 0
"""The status of a request without a response."""
SHOWN: Final = 120
"""Characters of a text of the server that a row quotes."""
_OK: Final = range(200, 300)
_REFUSALS: Final = range(400, 500)
_SERVER_ERRORS: Final = range(500, 600)


class SeenEvent(Struct, frozen=True):
    """One event of a stream, or the JSON body of a response."""

    message: Any
    """None: an event without a message."""
    id: str | None = None
    retry: int | None = None
    """How long the client must wait before it connects again, in milliseconds."""
    at: float = 0.0
    """Seconds from the request to this event."""

    @property
    def is_answer(self) -> bool:
        """True for a JSON-RPC response."""
        return isinstance(self.message, dict) and ("result" in self.message or "error" in self.message)

    @property
    def is_progress(self) -> bool:
        """True for a progress message."""
        return isinstance(self.message, dict) and self.message.get("method") == "notifications/progress"


class SeenResponse(Struct, kw_only=True):
    """A response, as far as it was read."""

    status: int = NO_ANSWER
    kind: str = ""
    """The media type."""
    headers: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    events: list[SeenEvent] = msgspec.field(default_factory=list)
    text: str = ""
    """A body that is not JSON, or the reason of a missing response."""
    ended: str = "late"
    """`end`; `late`: not within the time limit; `broken`: by the connection; `large`: over the limit of bytes;
    `left`: by us."""
    head: float = 0.0
    """Seconds until the head of the response."""
    first_byte: float = 0.0
    """Seconds until the first byte of the body; 0 if there is none."""
    seconds: float = 0.0

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The JSON-RPC responses."""
        return [event.message for event in self.events if event.is_answer]

    @property
    def result(self) -> Any:
        """The result of the only answer; None if there is another number of answers, or an error."""
        answers = self.answers
        return answers[0].get("result") if len(answers) == 1 else None

    @property
    def error(self) -> dict[str, Any]:
        """The first error that has a code; empty if there is none."""
        for answer in self.answers:
            error = answer.get("error")
            if isinstance(error, dict) and isinstance(error.get("code"), int):
                return error
        return {}

    @property
    def code(self) -> int | None:
        """The code of the first error; None if there is no error."""
        return self.error.get("code")

    @property
    def is_ok(self) -> bool:
        """True for a status of 200 to 299."""
        return self.status in _OK

    @property
    def is_refusal(self) -> bool:
        """True for a status of 400 to 499, or a JSON-RPC error with a status of 200 to 299."""
        return self.status in _REFUSALS or (self.is_ok and self.code is not None)

    @property
    def is_crash(self) -> bool:
        """True without a response, and for a status of 500 to 599: the fault is the server's."""
        return self.status == NO_ANSWER or self.status in _SERVER_ERRORS

    def __str__(self) -> str:
        """Describe it in a few words."""
        if self.status == NO_ANSWER:
            return f"no response within {self.seconds:.1f} s" if self.ended == "late" else self.text[:SHOWN]
        said = f"status {self.status}"
        if self.code is not None:
            said += f" with the error {self.code}"
        elif self.answers:
            said += " with a result"
        elif self.ended == "large":
            said += f" and {self.text}"
        elif self.text:
            said += f" ({' '.join(self.text[:SHOWN].split())})"
        elif self.is_ok:
            said += " and no answer" + (f" within {self.seconds:.1f} s" if self.ended == "late" else "")
        return said


Until = Callable[[SeenResponse], bool]
"""Says after each event whether enough was read. Then the connection is cut."""
