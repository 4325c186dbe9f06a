"""The context of a running function: progress, log messages, questions to the client, state."""
