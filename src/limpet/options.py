"""The options that `Server`, its decorators, `Remote`, `Process` and `Hosted` take by keyword."""

from limpet.backs.components import ComponentTable
from limpet.backs.environment import FromClaim, FromHeader
from limpet.backs.proxy.options import ProxyOptions
from limpet.backs.proxy.scopes import ScopeTable
from limpet.config import HttpOptions
from limpet.server.authoring.caching import Cache, CacheSettings
from limpet.server.authoring.prompts import PromptOptions
from limpet.server.authoring.resources import ResourceOptions
from limpet.server.authoring.tools import ToolOptions
from limpet.server.proxy import ProxyArguments

__all__ = [
    "Cache",
    "CacheSettings",
    "ComponentTable",
    "FromClaim",
    "FromHeader",
    "HttpOptions",
    "PromptOptions",
    "ProxyArguments",
    "ProxyOptions",
    "ResourceOptions",
    "ScopeTable",
    "ToolOptions",
]
