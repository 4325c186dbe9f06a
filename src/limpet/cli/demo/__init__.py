"""`limpet demo`: the four problems, live, at real processes of ours and of the official SDK."""
