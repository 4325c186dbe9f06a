"""Asks the admin surface of a running server, for `limpet sessions`.

The token goes only to the address that the operator named: there are no redirects and no proxies.
"""

import http.client
import re
import socket
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec
from typing_extensions import override

from limpet.errors import ConfigError, LimpetError

DEFAULT_URL: Final = "http://127.0.0.1:9000"
UNIX: Final = "unix:"
SECONDS: Final = 15.0
"""How long an answer may take. The surface itself waits 2 seconds for other replicas."""
MOST_BYTES: Final = 64 * 1024 * 1024
_TOKEN: Final = re.compile(r"[!-~]+")
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404

T = TypeVar("T")


class NotFound(LimpetError):
    """The surface has nothing of this name."""


class AdminClient:
    """Sends one request at a time."""

    def __init__(self, url: str, token: str) -> None:
        """Check the address and the token; nothing is connected.

        Raises:
            ConfigError: the address is no URL, or the token cannot be sent.
        """
        self._url = url if "://" in url or url.startswith(UNIX) else f"http://{url}"
        self._token = token
        if not _TOKEN.fullmatch(token):
            raise ConfigError("the admin token has only letters, digits and signs of ASCII, and no space")
        self._place = None if url.startswith(UNIX) else _place(self._url)
        """None: a Unix socket."""

    def get(self, kind: type[T], *path: str, **query: str | int) -> T:
        """Return the answer to a GET of the API.

        Raises:
            NotFound: there is nothing of this name.
            ConfigError: the surface cannot be reached, or refuses.
        """
        return self._decoded(kind, self._ask("GET", path, query))

    def post(self, *path: str) -> None:
        """Change something.

        Raises:
            NotFound: there is nothing of this name.
            ConfigError: the surface cannot be reached, or refuses.
        """
        self._ask("POST", path, {})

    def _ask(self, method: str, path: tuple[str, ...], query: dict[str, Any]) -> bytes:
        prefix = "" if self._place is None else self._place.path.rstrip("/")
        target = "/".join([f"{prefix}/api", *(quote(part, safe="") for part in path)])
        target += f"?{urlencode(query)}" if query else ""
        connection = self._connection()
        try:
            connection.request(method, target, headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            body = answer.read(MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            said = str(error) or type(error).__name__
            raise ConfigError(
                f"cannot ask the admin surface at {self._url}: {said}. Does the server run with --admin? "
                "Name its address with --admin or LIMPET_ADMIN_URL"
            ) from None
        finally:
            connection.close()
        if len(body) > MOST_BYTES:
            raise ConfigError(f"{self._url} answers with more than {MOST_BYTES} bytes")
        if answer.status != http.client.OK:
            self._raise_refusal(answer.status, body)
        return body

    def _raise_refusal(self, status: int, body: bytes) -> None:
        said = _error_of(body)
        if status == _UNAUTHORIZED:
            raise ConfigError(
                f"{self._url} refuses the token: give the server's own with --admin-token-file or LIMPET_ADMIN_TOKEN"
            )
        if status == _NOT_FOUND and said:
            raise NotFound(said)
        raise ConfigError(f"{self._url} answers {status}: {said or 'it is not an admin surface of Limpet'}")

    def _decoded(self, kind: type[T], body: bytes) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self._url} answers in another form: {error}. Has it the same version of Limpet?"
            ) from None

    def _connection(self) -> http.client.HTTPConnection:
        if self._place is None:
            return _UnixConnection(self._url.removeprefix(UNIX))
        is_https = self._place.scheme == "https"
        kind = http.client.HTTPSConnection if is_https else http.client.HTTPConnection
        return kind(self._place.hostname or "", self._place.port, timeout=SECONDS)


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._file = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._file)


def _place(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_good = bool(parts.hostname) and parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:
        is_good, parts = False, urlsplit("")
    if not is_good:
        raise ConfigError(f"--admin takes a URL such as {DEFAULT_URL}, or unix:PATH, not {url!r}")
    return parts


def _error_of(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=dict[str, str]).get("error", "")
    except msgspec.MsgspecError:
        return ""
