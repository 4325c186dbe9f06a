"""The HTTP/1.1 server of `holdfast serve`: sockets, bytes, requests, deadlines, and the life of the process.

sockets      addresses, Unix sockets, inherited descriptors, TLS
parser       bytes in, requests out, within bounds
known        a head like one that a connection has sent before is not parsed again
framing      where a body ends, and what is refused because two servers could read it differently
protocol     one connection: its requests are served one after another
channel      one request on a connection: its body, and its response with back-pressure
half_closed  a client that has closed its side: it waits, or it has gone
asgi         a request in the form of ASGI, for an author's routes
deadlines    the time of all connections: one sweep instead of timers
members      the open connections: their limits, and what every answer says
accepting    listening sockets, and the sweep of their connections
service      start, signals, drain, end
"""
