"""The client: concurrent, bounded, both eras, recovers by itself."""
