"""The options that `Server`, its decorators, `Remote`, `Process` and `Hosted` take by keyword."""

from holdfast.backs.components import ComponentTable
from holdfast.backs.environment import FromClaim, FromHeader
from holdfast.backs.proxy.options import ProxyOptions
from holdfast.backs.proxy.scopes import ScopeTable
from holdfast.config import HttpOptions
from holdfast.server.authoring.caching import Cache, CacheSettings
from holdfast.server.authoring.prompts import PromptOptions
from holdfast.server.authoring.resources import ResourceOptions
from holdfast.server.authoring.tools import ToolOptions
from holdfast.server.proxy import ProxyArguments

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
