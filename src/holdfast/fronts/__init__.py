"""Where clients come in: HTTP and connections that carry messages both ways (stdio, `Client(server)`)."""
