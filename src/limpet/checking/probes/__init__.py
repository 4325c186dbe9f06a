"""The probes: each is one function that raises `ProbeFailed` or `NotApplicable`, or returns the result as text."""
