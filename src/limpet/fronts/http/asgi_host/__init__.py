"""ASGI: another server receives the requests and runs us as its application (`Server.asgi()`)."""
