"""A server while it runs: one handler for each method, and the choice of the store."""
