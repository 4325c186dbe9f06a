"""Where sessions, claims, logs, asks and state are kept."""
