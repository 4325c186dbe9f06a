"""Receive clients: over HTTP, and on connections that carry messages both ways (stdio, `Client(server)`)."""
