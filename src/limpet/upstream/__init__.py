"""Speaking MCP to a server as its client: connections, both eras, retries. `client` and `backs` build on it.

From the outside in:

    connection.py     the connection to one server: send requests, reconnect, renegotiate
    retries.py        which failed requests may be sent again
    negotiation.py    the first messages: which era and which version the server speaks
    connectors.py     how a link is opened: to a URL, or to a child process
    link.py           the work of every link, and the ways of received messages
    http_link.py      a link over Streamable HTTP
    http_server.py    HTTP requests to the server: credentials, redirects, refusals
    duplex_link.py    a link over a duplex
    sse_duplex.py     a duplex over HTTP+SSE, the transport of 2024-11-05
    pending.py        requests of ours that wait for their response
    incoming.py       requests of the server that wait for ours
    profile.py        our description for the server
    settings.py       limits and times
"""
