"""Questions to the client (forms, pages, sampling, roots) and their answers."""

from holdfast.server.context.asks import Want
from holdfast.server.context.elicitation import Elicited, UrlElicitation
from holdfast.server.context.sampling import SamplingOptions
from holdfast.server.functions.input_required import InputRequired

__all__ = ["Elicited", "InputRequired", "SamplingOptions", "UrlElicitation", "Want"]
