"""Names of FastMCP and `mcp` that have another name here: an AttributeError names ours."""

from typing import Final

_UNCHANGED: Final = "is not offered; `limpet serve app.py:mcp` serves a FastMCP object unchanged"

FOREIGN_CONTEXT: Final = {
    "client_capabilities": "ctx.session.capabilities",
    "client_extension_settings": "ctx.session.capabilities",
    "client_id": "ctx.principal",
    "client_supports_extension": "ctx.session.capabilities",
    "close_sse_stream": "await ctx.close_stream()",
    "delete_state": "await ctx.state.delete(key)",
    "disable_components": "ctx.server.disable(tags=…, session=ctx.session)",
    "enable_components": "ctx.server.enable(tags=…, session=ctx.session)",
    "fastmcp": "ctx.server",
    "get_http_headers": "ctx.headers",
    "get_state": "await ctx.state.get(key)",
    "is_background_task": "await ctx.start_task()",
    "lifespan_context": "ctx.lifespan",
    "list_roots": "await ctx.roots()",
    "mcp_server": "ctx.server",
    "notify_prompts_changed": "ctx.server.notify_prompts_changed()",
    "notify_resource_updated": "await ctx.resource_updated(uri)",
    "notify_resources_changed": "ctx.server.notify_resources_changed()",
    "notify_tools_changed": "ctx.server.notify_tools_changed()",
    "protocol_version": "ctx.session.protocol_version",
    "request_context": "ctx.request_id, ctx.meta, ctx.headers, ctx.session and ctx.lifespan",
    "reset_visibility": "ctx.server.enable(tags=…, session=ctx.session)",
    "send_notification": "await ctx.session.notify(method, params)",
    "session_id": "ctx.session",
    "set_state": "await ctx.state.set(key, value)",
    "task_id": "await ctx.start_task()",
    "transport": "ctx.headers, which is empty on stdio",
}
"""By the name in a foreign `Context`: the text that replaces it here."""
FOREIGN_SERVER: Final = {
    "add_completion_handler": "@server.completion",
    "add_middleware": "server.middleware(middleware)",
    "add_provider": "server.include(other, prefix=…)",
    "add_template": "server.add_resource(uri_template, function)",
    "as_proxy": "limpet.Remote(url) or limpet.Process(command)",
    "call_tool": "async with Client(server) as client: await client.call_tool(name, arguments)",
    "custom_route": "@server.route(path)",
    "get_context": "limpet.current_context()",
    "get_prompt": "async with Client(server) as client: await client.get_prompt(name, arguments)",
    "http_app": "server.asgi()",
    "import_server": "server.include(other, prefix=…)",
    "lifespan": "Server(lifespan=…)",
    "list_prompts": "async with Client(server) as client: await client.list_prompts()",
    "list_resource_templates": "async with Client(server) as client: await client.list_resource_templates()",
    "list_resources": "async with Client(server) as client: await client.list_resources()",
    "list_tools": "async with Client(server) as client: await client.list_tools()",
    "mount": "server.include(other, prefix=…)",
    "read_resource": "async with Client(server) as client: await client.read_resource(uri)",
    "run_async": 'server.run("http"), or mount server.asgi()',
    "run_http_async": 'server.run("http"), or mount server.asgi()',
    "run_sse_async": 'server.run("http"): the transport HTTP+SSE of 2024-11-05 is not offered',
    "run_stdio_async": "server.run()",
    "run_streamable_http_async": 'server.run("http"), or mount server.asgi()',
    "sse_app": "server.asgi(): the transport HTTP+SSE of 2024-11-05 is not offered",
    "streamable_http_app": "server.asgi()",
    **dict.fromkeys(
        ("add_extension", "add_tool_transformation", "add_transform", "from_fastapi", "from_openapi"), ""
    ),
}
"""By the name in a foreign server class: the text that replaces it here; empty: nothing does."""


FOREIGN_OPTIONS: Final = {
    "auth": "verifier=…, a function that checks tokens (docs/authorization.md)",
    "token_verifier": "verifier=…, a function that checks tokens (docs/authorization.md)",
    "stateless_http": "settings=Settings(stateless=True), or limpet serve --stateless",
    "json_response": 'server.asgi(response="json"), or limpet serve --response json',
    "host": 'server.run("http", host=…), or limpet serve --http HOST:PORT',
    "port": 'server.run("http", port=…), or limpet serve --http HOST:PORT',
    "streamable_http_path": "server.asgi(path=…), or limpet serve --path",
    "event_store": "store=…, the URL of a store: streams can be resumed without one too",
    "mask_error_details": "mask_errors=True",
    "middleware": "server.middleware(function)",
    "tools": "server.add_tool(function)",
    "on_duplicate": "nothing: a name that is registered twice is an error",
    "log_level": "limpet serve --log-level",
    "debug": "limpet serve --log-level debug",
}
"""By the argument of a foreign server class: what to use here."""


def refuse_foreign(options: dict[str, object]) -> None:
    """Raise TypeError for an argument of `FastMCP` that `Server` does not have; the text has ours."""
    for name in options.keys() & FOREIGN_OPTIONS.keys():
        raise TypeError(f"Server has no argument {name!r}; use {FOREIGN_OPTIONS[name]}")


def renamed(found: object, name: str, names: dict[str, str]) -> AttributeError:
    """Return the error for an attribute that does not exist; for a foreign name, with ours."""
    message = f"{type(found).__name__!r} object has no attribute {name!r}"
    if name in names:
        ours = names[name]
        message += f"; use {ours}" if ours else f": this {_UNCHANGED}"
    return AttributeError(message, name=name, obj=found)
