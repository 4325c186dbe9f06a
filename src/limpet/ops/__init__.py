"""For operators: log lines, metrics, traces and the admin surface."""
