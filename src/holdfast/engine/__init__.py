"""What runs: sessions, exchanges, streams, asks and readers. The only place with long-lived tasks."""
