"""Python objects of other MCP frameworks, served in our process and unmodified.

    ProxyBack ──▶ Upstream ──▶ Connection ──▶ HostedLink ──▶ HostedRun ──▶ the `lowlevel.Server` of the object

    frameworks.py  which objects can be hosted, and why an object is refused
    lifespan.py    the object's lifespan, entered once in a process
    run.py         one run of the object: one conversation with one client, and the link over it
    streams.py     the two streams of a run
    identity.py    the HTTP request and the user, as handlers of the frameworks see them

`server/hosted.py` opens a run for each upstream connection.

None of the frameworks is a dependency of ours. An object that exists has imported its framework, so the modules that
we need are taken from there (`importlib.import_module`) when the object is served.
"""
