"""A real authorization server, a protected server of Limpet, and OAuth clients of several projects."""
