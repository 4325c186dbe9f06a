"""Sealed texts: a client keeps them for us and can neither read nor change them (AES-256-GCM)."""

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from limpet.ports import Random

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
MAX_SEALED: Final = 16 * 1024
"""The longest sealed text, unless a sealer has another limit. A longer one is refused without decryption."""


class Sealer:
    """Seals with the newest key, opens with any key. A text sealed for one `purpose` cannot be opened for another."""

    def __init__(
        self, random: Random, purpose: str, keys: Sequence[bytes] = (), *, longest: int = MAX_SEALED
    ) -> None:
        self._random = random
        self._purpose = purpose.encode()
        self._longest = longest
        self._keys = list(keys)
        self._ciphers: list[AESGCM] | None = None

    def seal(self, text: bytes, about: bytes = b"") -> str:
        """Return the sealed text as base64url, for JSON strings and headers. `open` needs the same `about`."""
        nonce = bytes.fromhex(self._random.token(_NONCE_BYTES))
        sealed = nonce + self._open_ciphers()[0].encrypt(nonce, text, self._purpose + about)
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, sealed: str, about: bytes = b"") -> bytes | None:
        """Return the text.

        None if it was changed, or was sealed with another key, for another purpose or with another `about`.
        """
        if len(sealed) > self._longest or not sealed.isascii():
            return None
        try:
            raw = base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - loaded only when something is sealed

        for cipher in self._open_ciphers():
            try:
                return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], self._purpose + about)
            except (InvalidTag, ValueError):
                continue
        return None

    def _open_ciphers(self) -> "list[AESGCM]":
        if self._ciphers is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

            keys = self._keys or [bytes.fromhex(self._random.token(KEY_BYTES))]
            self._ciphers = [AESGCM(key) for key in keys]
        return self._ciphers
