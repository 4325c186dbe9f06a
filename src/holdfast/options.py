"""The options that `Server`, its decorators, `Remote` and `Process` take by keyword."""

from holdfast.backs.proxy.options import ProxyOptions
from holdfast.config import HttpOptions
from holdfast.server.authoring.caching import Cache, CacheSettings
from holdfast.server.authoring.prompts import PromptOptions
from holdfast.server.authoring.resources import ResourceOptions
from holdfast.server.authoring.tools import ToolOptions

__all__ = [
    "Cache",
    "CacheSettings",
    "HttpOptions",
    "PromptOptions",
    "ProxyOptions",
    "ResourceOptions",
    "ToolOptions",
]
