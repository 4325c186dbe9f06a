"""The probes: each is one function that raises `Failed` or `NotApplicable`, or returns the result as text."""
