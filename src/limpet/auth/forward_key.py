r"""Credentials of a request that one replica sends to another through the store: sealed under a key of the operator.

The key is never in the store, so a reader of the store cannot act as a client. The operator gives all replicas the
same key: 32 random bytes as base64. Several keys are separated by white space or commas; the first one seals, all of
them open. So a key is replaced in three steps, and replicas before and after each step can open each other's messages:
old, new; new, old; new.

    message with credentials = "sealed " + base64url(nonce + AES-256-GCM(headers)) + "\n" + the message

The message itself, with its session, stream, principal and request, and the name of the replica that receives it are
associated data of the cipher. So sealed credentials cannot be taken out of one message and put into another one, nor
sent to another replica, and a message with credentials cannot be changed.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from limpet.auth.seal import KEY_BYTES, Sealer
from limpet.errors import ConfigError
from limpet.ports import Random

_PURPOSE: Final = "forwarded credentials"
_MARK: Final = b"sealed "
MAX_CREDENTIALS: Final = 1024 * 1024
"""The longest sealed credentials. `Limits.headers` bounds the headers of a request far below it."""
HOW_TO_MAKE: Final = "make one with: openssl rand -base64 32"

_headers: Final = msgspec.json.Decoder(dict[str, str])


class ForwardKey:
    """The operator's key. Its text and its representation never show it."""

    __slots__ = ("keys",)

    def __init__(self, text: str, place: str = "the forward key") -> None:
        """Read a key, or several. `place` says in errors where the text comes from.

        Raises:
            ConfigError: the text is not a key. The error does not repeat it.
        """
        words = [word for word in re.split(r"[\s,]+", text) if word]
        if not words:
            raise ConfigError(f"{place} is empty; {HOW_TO_MAKE}")
        self.keys: list[bytes] = [
            _decoded(word, f"{place}, key {at + 1} of {len(words)},") for at, word in enumerate(words)
        ]

    def __repr__(self) -> str:
        return f"<ForwardKey of {len(self.keys)}>"


class CredentialSealer:
    """Seals credentials for other replicas, and opens those for this one."""

    __slots__ = ("_sealer",)

    def __init__(self, key: ForwardKey | None, random: Random) -> None:
        self._sealer = (
            Sealer(random, _PURPOSE, key.keys, longest=MAX_CREDENTIALS) if key is not None else None
        )

    @property
    def has_key(self) -> bool:
        """True if headers travel sealed."""
        return self._sealer is not None

    def attach(self, message: bytes, headers: Mapping[str, str], *, replica: str) -> bytes:
        """Return a message for a replica together with its sealed headers. Without a key they are left out."""
        if self._sealer is None or not headers:
            return message
        sealed = self._sealer.seal(msgspec.json.encode(headers), _about(message, replica))
        return b"%s%s\n%s" % (_MARK, sealed.encode(), message)

    def detach(self, payload: bytes, *, replica: str) -> tuple[bytes, dict[str, str] | None]:
        """Return a message to this replica, and the headers that were sealed with it.

        None: they cannot be opened. This replica has no key or another one, or the payload was changed or was made for
        another replica. Then the message may not be carried out.
        """
        if not payload.startswith(_MARK):
            return payload, {}
        sealed, _, message = payload[len(_MARK) :].partition(b"\n")
        if self._sealer is None:
            return message, None
        text = self._sealer.open(sealed.decode("latin-1"), _about(message, replica))
        return message, _headers.decode(text) if text is not None else None


def new_key(random: Random) -> str:
    """Return the text of a new key."""
    return base64.b64encode(bytes.fromhex(random.token(KEY_BYTES))).decode()


def _about(message: bytes, replica: str) -> bytes:
    return b"%s\0%s" % (replica.encode(), message)


def _decoded(word: str, place: str) -> bytes:
    try:
        key = base64.b64decode(
            word + "=" * (-len(word) % 4),
            altchars=b"-_" if "-" in word or "_" in word else None,
            validate=True,
        )
    except (binascii.Error, ValueError):
        raise ConfigError(f"{place} is not base64; {HOW_TO_MAKE}") from None
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{place} has {len(key)} bytes and needs {KEY_BYTES}; {HOW_TO_MAKE}")
    return key
