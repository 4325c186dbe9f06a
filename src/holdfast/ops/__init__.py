"""For operators: log lines, and later metrics, traces and the admin surface."""
