"""The HTTP/1.1 server of `limpet serve`: sockets, bytes, requests, deadlines, and the life of the process.

sockets           addresses, Unix sockets, inherited descriptors
certificates      the certificate and the key of TLS
handshakes        connections with TLS, which count from the beginning of their handshake
parser            bytes in, requests out, within bounds
known_heads       a head like an earlier one of its connection is not parsed again
framing           where a body ends, and which requests are refused because two servers could read them differently
connection        one connection: its requests are served one after another
answers           heads of answers; refusals of the connection itself
channel           one request on a connection: its body, and its response with back-pressure
acknowledged      which bytes the other side of a connection has acknowledged
half_closed       a client that has closed its side: it waits for its answer, or has disconnected
asgi              a request in the form of ASGI, for an author's routes
deadlines         the time of all connections: one sweep instead of timers
connection_charge the memory that a connection takes
members           the open connections: their limits, and the headers of every answer
accept            listening sockets, and the sweep of their connections
start_and_stop    start, signals, drain, end
"""
