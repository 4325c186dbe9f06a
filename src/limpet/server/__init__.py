"""The `Server` that authors write against.

| folder | answers the question |
|---|---|
| `authoring` | the parts that an author writes: tools, resources, prompts, completions, middleware, routes, listeners |
| `functions` | how a function becomes a component: signature, schema, dependencies, content, errors |
| `catalog` | the registered components: which clients see them, how they are listed |
| `context` | the methods of a running function: progress, log, ask the client, keep state |
| `running` | the handler of each method, and the store |
"""
