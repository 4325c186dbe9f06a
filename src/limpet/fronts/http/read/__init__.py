"""Read: the head and the body of a request, the path, and the address of its client."""
