"""The client: what users write against. `upstream` speaks the protocol for it."""
