"""Requests that two servers could read differently, each with the answers that this server gives.

`statuses` are those of all answers on the connection, in order. A case with 200 in it shows that what follows an accepted
request is read as its own request: the marker `SECOND` is a request of its own, and never a part of a body.
"""

from typing import Final, NamedTuple

SECOND: Final = b"GET /second HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Case(NamedTuple):
    """Bytes of a client, and the statuses of the answers."""

    sent: bytes
    statuses: list[int]
    bodies: tuple[bytes, ...] = ()
    """The bodies that reach the application, in order."""


def post(*lines: bytes, body: bytes = b"") -> bytes:
    """Return a POST with these header lines."""
    return (
        b"POST /first HTTP/1.1\r\nHost: localhost\r\n"
        + b"".join(line + b"\r\n" for line in lines)
        + b"\r\n"
        + body
    )


def chunked(body: bytes) -> bytes:
    """Return a POST whose body is sent in these chunks."""
    return post(b"Transfer-Encoding: chunked", body=body)


def start(line: bytes) -> bytes:
    """Return a request with this first line."""
    return line + b"\r\nHost: localhost\r\n\r\n"


BAD: Final = [400]
LAST: Final = b"0\r\n\r\n"

CORPUS: Final = {
    # A length and a coding
    "CL.TE": Case(post(b"Content-Length: 6", b"Transfer-Encoding: chunked", body=LAST + b"G"), BAD),
    "TE.CL": Case(post(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"5c\r\n" + SECOND), BAD),
    "CL.TE, other case": Case(
        post(b"content-length: 6", b"TRANSFER-ENCODING: CHUNKED", body=LAST + b"G"), BAD
    ),
    "CL.0": Case(post(b"Content-Length: 0", body=SECOND), [200, 200], (b"", b"")),
    # Codings
    "TE.TE, unknown first": Case(
        post(b"Transfer-Encoding: x", b"Transfer-Encoding: chunked", body=LAST), [501]
    ),
    "TE.TE, unknown last": Case(post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x", body=LAST), BAD),
    "TE.TE, twice": Case(post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=LAST), BAD),
    "TE list, twice": Case(post(b"Transfer-Encoding: chunked, chunked", body=LAST), BAD),
    "TE identity": Case(post(b"Transfer-Encoding: identity", body=SECOND), BAD),
    "TE gzip": Case(post(b"Transfer-Encoding: gzip", body=SECOND), BAD),
    "TE gzip, chunked": Case(post(b"Transfer-Encoding: gzip, chunked", body=LAST), [501]),
    "TE chunked, gzip": Case(post(b"Transfer-Encoding: chunked, gzip", body=LAST), BAD),
    "TE xchunked": Case(post(b"Transfer-Encoding: xchunked", body=LAST), BAD),
    "TE chunkedx": Case(post(b"Transfer-Encoding: chunkedx", body=LAST), BAD),
    "TE quoted": Case(post(b'Transfer-Encoding: "chunked"', body=LAST), BAD),
    "TE with a parameter": Case(post(b"Transfer-Encoding: chunked;q=1", body=LAST), BAD),
    "TE with a vertical tab": Case(post(b"Transfer-Encoding: \x0bchunked", body=LAST), BAD),
    "TE with a NUL": Case(post(b"Transfer-Encoding: chunked\0", body=LAST), BAD),
    "TE, space before the colon": Case(post(b"Transfer-Encoding : chunked", body=LAST), BAD),
    "TE, empty": Case(post(b"Transfer-Encoding:", body=SECOND), BAD),
    "TE, comma first": Case(post(b"Transfer-Encoding: ,chunked", body=LAST), BAD),
    "TE in HTTP/1.0": Case(chunked(LAST).replace(b"HTTP/1.1", b"HTTP/1.0"), BAD),
    "TE in other case": Case(
        post(b"transfer-encoding:  CHUNKED ", body=b"3\r\nabc\r\n" + LAST) + SECOND, [200, 200], (b"abc", b"")
    ),
    "TE folded": Case(post(b"Transfer-Encoding:\r\n chunked", body=LAST), BAD),
    # Lengths
    "two equal lengths": Case(post(b"Content-Length: 3", b"Content-Length: 3", body=b"abc"), BAD),
    "two lengths": Case(post(b"Content-Length: 3", b"Content-Length: 0", body=b"abc"), BAD),
    "a list of lengths": Case(post(b"Content-Length: 3, 3", body=b"abc"), BAD),
    "a signed length": Case(post(b"Content-Length: +3", body=b"abc"), BAD),
    "a negative length": Case(post(b"Content-Length: -1", body=b"abc"), BAD),
    "a hexadecimal length": Case(post(b"Content-Length: 0x3", body=b"abc"), BAD),
    "an underscore in a length": Case(post(b"Content-Length: 1_0", body=b"abcdefghij"), BAD),
    "a length with a point": Case(post(b"Content-Length: 3.0", body=b"abc"), BAD),
    "an empty length": Case(post(b"Content-Length: ", body=b"abc"), BAD),
    "a length in two parts": Case(post(b"Content-Length: 3 3", body=b"abc"), BAD),
    "a length that overflows": Case(post(b"Content-Length: 18446744073709551619", body=b"abc"), BAD),
    "a length with zeros": Case(
        post(b"Content-Length: 003", body=b"abc") + SECOND, [200, 200], (b"abc", b"")
    ),
    "a length, space before the colon": Case(post(b"Content-Length : 3", body=b"abc"), BAD),
    "a length, tab before the colon": Case(post(b"Content-Length\t: 3", body=b"abc"), BAD),
    "a length folded": Case(post(b"Content-Length:\r\n 3", body=b"abc"), BAD),
    # Headers
    "a folded header": Case(post(b"X: a\r\n b"), BAD),
    "a header that begins with a space": Case(post(b" X: a"), BAD),
    "a header without a colon": Case(post(b"X"), BAD),
    "a header without a name": Case(post(b": a"), BAD),
    "a NUL in a name": Case(post(b"X\0: a"), BAD),
    "a NUL in a value": Case(post(b"X: a\0b"), BAD),
    "a bare LF behind a header": Case(post(b"X: a\nY: b"), BAD),
    "a bare CR behind a header": Case(post(b"X: a\rY: b"), BAD),
    "a bare LF behind the first line": Case(start(b"GET /first HTTP/1.1").replace(b"\r\n", b"\n", 1), BAD),
    "bare LF everywhere": Case(start(b"GET /first HTTP/1.1").replace(b"\r\n", b"\n"), BAD),
    "a head that ends with LF": Case(b"GET /first HTTP/1.1\r\nHost: localhost\r\n\n" + SECOND, BAD),
    "a name outside ASCII": Case(post("Xé: a".encode()), BAD),
    "no host": Case(b"GET /first HTTP/1.1\r\n\r\n", BAD),
    "no host in HTTP/1.0": Case(b"GET /first HTTP/1.0\r\n\r\n", [200], (b"",)),
    "two equal hosts": Case(post(b"Host: localhost"), BAD),
    "two hosts": Case(post(b"host: evil.example"), BAD),
    "two hosts in HTTP/1.0": Case(post(b"Host: localhost").replace(b"HTTP/1.1", b"HTTP/1.0"), BAD),
    "two hosts with an offer": Case(post(b"Host: x", b"Connection: Upgrade", b"Upgrade: h2c"), BAD),
    # The first line
    "absolute form": Case(start(b"GET http://localhost/first HTTP/1.1"), BAD),
    "absolute form of another host": Case(start(b"GET http://evil.example/first HTTP/1.1"), BAD),
    "authority form": Case(start(b"CONNECT localhost:80 HTTP/1.1"), BAD),
    "asterisk form": Case(start(b"OPTIONS * HTTP/1.1"), BAD),
    "a fragment": Case(start(b"GET /first#x HTTP/1.1"), BAD),
    "a NUL in the target": Case(start(b"GET /fi\0rst HTTP/1.1"), BAD),
    "a control character in the target": Case(start(b"GET /fi\x01rst HTTP/1.1"), BAD),
    "a target outside ASCII": Case(start(b"GET /\xff HTTP/1.1"), BAD),
    "a space in the target": Case(start(b"GET /fi rst HTTP/1.1"), BAD),
    "an unknown method": Case(start(b"EVIL /first HTTP/1.1"), BAD),
    "a method in lower case": Case(start(b"get /first HTTP/1.1"), BAD),
    "a tab behind the method": Case(start(b"GET\t/first HTTP/1.1"), BAD),
    "HTTP/0.9": Case(b"GET /first\r\n\r\n", [505]),
    "HTTP/1.2": Case(start(b"GET /first HTTP/1.2"), BAD),
    "HTTP/2.0": Case(start(b"GET /first HTTP/2.0"), [505]),
    "the preface of HTTP/2": Case(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", BAD),
    "TLS": Case(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", BAD),
    "empty lines first": Case(b"\r\n\r\n" + SECOND, [200], (b"",)),
    # Chunks
    "chunks": Case(chunked(b"3\r\nabc\r\n2\r\nde\r\n" + LAST) + SECOND, [200, 200], (b"abcde", b"")),
    "an extension": Case(chunked(b"3;a=b\r\nabc\r\n0;c\r\n\r\n") + SECOND, [200, 200], (b"abc", b"")),
    "an extension that ends with LF": Case(chunked(b"3;a\nabc\r\n" + LAST), BAD),
    "an extension with a CR": Case(chunked(b"3;a\rb\r\nabc\r\n" + LAST), BAD),
    "an open quote in an extension": Case(chunked(b'3;a="b\r\nabc\r\n' + LAST), BAD),
    "a size with 0x": Case(chunked(b"0x3\r\nabc\r\n" + LAST), BAD),
    "a signed size": Case(chunked(b"+3\r\nabc\r\n" + LAST), BAD),
    "a negative size": Case(chunked(b"-3\r\nabc\r\n" + LAST), BAD),
    "a size with an underscore": Case(chunked(b"1_0\r\nabc\r\n" + LAST), BAD),
    "a space behind a size": Case(chunked(b"3 \r\nabc\r\n" + LAST), BAD),
    "a space before a size": Case(chunked(b" 3\r\nabc\r\n" + LAST), BAD),
    "no size": Case(chunked(b"\r\nabc\r\n" + LAST), BAD),
    "a size that overflows": Case(chunked(b"10000000000000003\r\nabc\r\n" + LAST), BAD),
    "a size that ends with LF": Case(chunked(b"3\nabc\r\n" + LAST), BAD),
    "a chunk that ends with LF": Case(chunked(b"3\r\nabc\n" + LAST), BAD),
    "a chunk longer than its size": Case(chunked(b"3\r\nabcd\r\n" + LAST), BAD),
    "a last chunk that ends with LF": Case(chunked(b"3\r\nabc\r\n0\n\n") + SECOND, BAD),
    # Trailers
    "a trailer": Case(chunked(b"0\r\nX: a\r\n\r\n") + SECOND, [200, 200], (b"", b"")),
    "a length as a trailer": Case(chunked(b"0\r\nContent-Length: 5\r\n\r\n"), BAD),
    "a coding as a trailer": Case(chunked(b"0\r\nTransfer-Encoding: chunked\r\n\r\n"), BAD),
    "a bare LF in trailers": Case(chunked(b"0\r\nX: a\n\r\n"), BAD),
    # Bytes behind a request
    "an error behind a request": Case(SECOND + b"\x16\x03\x01", [200, 400], (b"",)),
    "a request behind the last one": Case(
        SECOND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + SECOND, [200], (b"",)
    ),
    "a body of a GET": Case(
        b"GET /first HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(SECOND) + SECOND,
        [200],
        (SECOND,),
    ),
}
