"""The catalog: the registered components, their visibility, and the lists that clients receive."""
