"""Questions to the client (forms, pages, sampling, roots) and their answers."""

from limpet.server.context.asks import Want
from limpet.server.context.elicitation import Elicited, UrlElicitation
from limpet.server.context.sampling import SamplingOptions
from limpet.server.functions.input_required import InputRequired

__all__ = ["Elicited", "InputRequired", "SamplingOptions", "UrlElicitation", "Want"]
