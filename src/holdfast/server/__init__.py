"""The `Server` that authors write against.

| folder | answers the question |
|---|---|
| `authoring` | which parts does an author write: tools, resources, prompts, completions, middleware, routes, listeners |
| `functions` | how does a Python function become a component: signature, schema, dependencies, content, errors |
| `catalog` | which components are registered, which clients see them, how are they listed |
| `context` | which methods does a running function have: progress, log, ask the client, keep state |
| `running` | which handler answers which method, and with which store |
"""
