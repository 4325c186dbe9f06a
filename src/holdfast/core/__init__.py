"""Sessions, streams and admission as pure machines: time comes in, decisions come out."""
