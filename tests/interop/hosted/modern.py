"""The object of `mcp` 2, with which we speak 2026-07-28."""

from limpet import Hosted
from tests.interop.hosted.mcp2_app import mcp

server = Hosted(mcp, protocol_version="sessionless")
