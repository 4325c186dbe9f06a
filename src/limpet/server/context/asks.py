"""The asks that a handler can send to its client: a form, a page, a sampling request, the roots. For both eras.

`ctx.elicit` and the similar methods send one ask and wait. A handler that must not wait returns an
`InputRequired` instead: it is called again, from its start, when the client has answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from limpet.errors import CapabilityMissing
from limpet.protocol.older import fit
from limpet.protocol.sessionless import VERSION
from limpet.protocol.types import (
    ClientCapabilities,
    CreateMessageParams,
    ElicitFormParams,
    ElicitURLParams,
)
from limpet.server.context.elicitation import Form, form, form_for
from limpet.server.context.sampling import SamplingOptions, check_sampling, sampling_params

if TYPE_CHECKING:
    from limpet.engine.exchange import Client

Mint = Callable[[], str]
"""Returns a new name that cannot be guessed."""


class ClientQuestion:
    """A question to a client."""

    __slots__ = ()
    method = ""

    def params(self, client: Client, mint: Mint) -> object:
        """Return the parameters of the ask in the format of this client's revision.

        Raises:
            CapabilityMissing: the client did not declare the capability that this ask needs.
        """
        raise NotImplementedError


class FormAsk(ClientQuestion):
    """A form that the user fills in."""

    __slots__ = ("form", "message")
    method = "elicitation/create"

    def __init__(self, message: str, shape: Any) -> None:
        self.message: str = message
        self.form: Form[Any] = form(shape)

    def params(self, client: Client, mint: Mint) -> object:  # noqa: ARG002
        can = capabilities_of(client)
        if not can.elicits_form:
            part = "" if can.elicitation is None else "form"
            name = f"elicitation.{part}" if part else "elicitation"
            raise CapabilityMissing(
                f"the client cannot show forms: it did not declare the capability `{name}`",
                {"elicitation": {part: {}} if part else {}},
            )
        schema = form_for(client.record.version, self.form.schema)
        return ElicitFormParams(message=self.message, requested_schema=schema)


class PageAsk(ClientQuestion):
    """A page that the user opens."""

    __slots__ = ("elicitation_id", "message", "url")
    method = "elicitation/create"

    def __init__(self, message: str, url: str, elicitation_id: str = "") -> None:
        self.message: str = message
        self.url: str = url
        self.elicitation_id: str = elicitation_id

    def params(self, client: Client, mint: Mint) -> object:
        if not capabilities_of(client).elicits_url:
            raise CapabilityMissing(
                "the client cannot open pages: it did not declare `elicitation.url`",
                {"elicitation": {"url": {}}},
            )
        if client.record.version == VERSION:
            return {"mode": "url", "message": self.message, "url": self.url}
        name = self.elicitation_id or mint()
        return ElicitURLParams(message=self.message, url=self.url, elicitation_id=name)


class SamplingAsk(ClientQuestion):
    """A message that the client's model generates."""

    __slots__ = ("asked",)
    method = "sampling/createMessage"

    def __init__(self, messages: object, options: SamplingOptions) -> None:
        self.asked: CreateMessageParams = sampling_params(messages, options)

    def params(self, client: Client, mint: Mint) -> object:  # noqa: ARG002
        check_sampling(capabilities_of(client), self.asked, client.record.version)
        return fit(client.record.version, self.asked)


class RootsAsk(ClientQuestion):
    """The directories that the client works in."""

    __slots__ = ()
    method = "roots/list"

    def params(self, client: Client, mint: Mint) -> object:  # noqa: ARG002
        if capabilities_of(client).roots is None:
            raise CapabilityMissing(
                "the client has no roots: it did not declare the capability `roots`", {"roots": {}}
            )
        return {}


class Want:
    """The questions that an `InputRequired` can hold. Each function returns one."""

    @staticmethod
    def form(message: str, shape: Any) -> ClientQuestion:
        """Ask the user to fill in a form; `shape` as `ctx.elicit` takes it."""
        return FormAsk(message, shape)

    @staticmethod
    def page(message: str, url: str) -> ClientQuestion:
        """Ask the user to open a page."""
        return PageAsk(message, url)

    @staticmethod
    def sample(messages: object, **options: Unpack[SamplingOptions]) -> ClientQuestion:
        """Ask the client's model for a completion; arguments as `ctx.sample` takes them."""
        return SamplingAsk(messages, options)

    @staticmethod
    def roots() -> ClientQuestion:
        """Ask for the directories that the client works in."""
        return RootsAsk()


def capabilities_of(client: Client) -> ClientCapabilities:
    """Return the capabilities that a client declared."""
    return ClientCapabilities.from_wire(client.record.capabilities)
