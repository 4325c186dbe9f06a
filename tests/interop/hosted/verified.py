"""The object of the framework that the environment names, hosted with a verifier of Limpet."""

import os
from importlib import import_module
from typing import Final

from limpet import Hosted, Principal

SCOPES: Final = {"ada": frozenset({"admin"})}
"""By the user's name. All others have none."""


async def verify(token: str) -> Principal:
    """Return the user: the token is the name, and a number after a full stop if it was renewed."""
    name = token.partition(".")[0]
    return Principal(subject=name, scopes=SCOPES.get(name, frozenset()))


app = import_module(f"tests.interop.hosted.{os.environ['HOSTED_FRAMEWORK']}_app")
server = Hosted(app.mcp, verifier=verify)
