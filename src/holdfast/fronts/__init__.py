"""Where clients come in: HTTP, stdio, and a pair in memory."""
