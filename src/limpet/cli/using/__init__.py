"""`limpet inspect`, `call`, `read` and `prompt`: use a server from the terminal, as a client."""
