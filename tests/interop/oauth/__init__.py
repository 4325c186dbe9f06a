"""A real authorization server, a protected server of Holdfast, and OAuth clients of several projects."""
