"""Sessions, streams and admission as pure state machines: the caller passes the time in, and they return decisions."""
