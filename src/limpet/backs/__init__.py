"""The backs: they answer requests."""
