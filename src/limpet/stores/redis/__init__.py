"""The Redis store: one Lua script is one step, all keys of a session share a slot, pub/sub only carries wake-ups."""
