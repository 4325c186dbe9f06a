"""The HTTP/1.1 server of `holdfast serve`: sockets, bytes, requests, deadlines, and the life of the process.

sockets      addresses, Unix sockets, inherited descriptors
certificates the certificate and the key of TLS
descriptors  how many connections fit into the descriptors of the process
handshakes   connections with TLS, which count from the beginning of their handshake
parser       bytes in, requests out, within bounds
known        a head like an earlier one of its connection is not parsed again
framing      where a body ends, and which requests are refused because two servers could read them differently
protocol     one connection: its requests are served one after another
channel      one request on a connection: its body, and its response with back-pressure
half_closed  a client that has closed its side: it waits for its answer, or has disconnected
asgi         a request in the form of ASGI, for an author's routes
deadlines    the time of all connections: one sweep instead of timers
members      the open connections: their limits, and the headers of every answer
accepting    listening sockets, and the sweep of their connections
service      start, signals, drain, end
"""
