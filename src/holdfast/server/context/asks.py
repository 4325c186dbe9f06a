"""What a handler can want of its client: a form, a page, a completion, its roots. One description for both eras.

`ctx.elicit` and its siblings ask for one and wait. A handler that must not wait returns an
`InputRequired` instead: it is called again, from the start, once the answers are there.
"""

from collections.abc import Callable
from typing import Any, Unpack

from holdfast.engine.exchange import Client
from holdfast.errors import CapabilityMissing
from holdfast.protocol.older import fit
from holdfast.protocol.sessionless import VERSION
from holdfast.protocol.types import (
    ClientCapabilities,
    CreateMessageParams,
    ElicitFormParams,
    ElicitURLParams,
)
from holdfast.server.context.elicitation import Form, form, form_for
from holdfast.server.context.sampling import SamplingOptions, check_sampling, sampling_params

Mint = Callable[[], str]
"""Makes a name that nobody can guess."""


class Ask:
    """Something to ask a client for."""

    __slots__ = ()
    method = ""

    def params(self, client: Client, mint: Mint) -> object:
        """Return the ask's parameters in the words of this client's revision.

        Raises:
            CapabilityMissing: the client did not declare what this needs.
        """
        raise NotImplementedError


class FormAsk(Ask):
    """A form for the user."""

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


class PageAsk(Ask):
    """A page for the user to open."""

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


class SamplingAsk(Ask):
    """A completion by the client's model."""

    __slots__ = ("asked",)
    method = "sampling/createMessage"

    def __init__(self, messages: object, options: SamplingOptions) -> None:
        self.asked: CreateMessageParams = sampling_params(messages, options)

    def params(self, client: Client, mint: Mint) -> object:  # noqa: ARG002
        check_sampling(capabilities_of(client), self.asked, client.record.version)
        return fit(client.record.version, self.asked)


class RootsAsk(Ask):
    """The places of its file system that the client works in."""

    __slots__ = ()
    method = "roots/list"

    def params(self, client: Client, mint: Mint) -> object:  # noqa: ARG002
        if capabilities_of(client).roots is None:
            raise CapabilityMissing(
                "the client has no roots: it did not declare the capability `roots`", {"roots": {}}
            )
        return {}


class Want:
    """Makes what an `InputRequired` asks for."""

    @staticmethod
    def form(message: str, shape: Any) -> Ask:
        """Ask the user to fill in a form; `shape` as `ctx.elicit` takes it."""
        return FormAsk(message, shape)

    @staticmethod
    def page(message: str, url: str) -> Ask:
        """Ask the user to open a page."""
        return PageAsk(message, url)

    @staticmethod
    def sample(messages: object, **options: Unpack[SamplingOptions]) -> Ask:
        """Ask the client's model for a completion; arguments as `ctx.sample` takes them."""
        return SamplingAsk(messages, options)

    @staticmethod
    def roots() -> Ask:
        """Ask which places of its file system the client works in."""
        return RootsAsk()


def capabilities_of(client: Client) -> ClientCapabilities:
    """Return what a client declared."""
    return ClientCapabilities.from_wire(client.record.capabilities)
