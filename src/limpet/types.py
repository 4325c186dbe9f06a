"""Every type of the protocol, by its name in the specification: results, content blocks, parameters."""

from limpet.protocol.types import *  # noqa: F403
from limpet.protocol.types import __all__ as __all__  # noqa: PLC0414
