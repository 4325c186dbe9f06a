"""TLS: the certificate and the key of a server, from PEM files.

OpenSSL says little about the files that it does not take ("PEM lib"), so the files are examined for the error.
"""

import contextlib
import datetime as dt
import logging
import os
import re
import ssl
from pathlib import Path
from typing import Final

from limpet.errors import ConfigError
from limpet.ports import SystemClock

LOGGER: Final = logging.getLogger("limpet")
_CERTIFICATE: Final = re.compile(rb"^-----BEGIN (?:\w+ )?CERTIFICATE-----", re.MULTILINE)
_KEY: Final = re.compile(rb"^-----BEGIN (?:\w+ )?PRIVATE KEY-----", re.MULTILINE)
_MISMATCHES: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")


def tls_context(certificate: str, key: str | None = None) -> ssl.SSLContext:
    """Return a TLS context for a server, TLS 1.2 or newer, from PEM files: a certificate with its chain, and its key.

    Raises:
        ConfigError: the files cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str | None = None) -> None:
    """Read the files, and use them for all further handshakes of a context.

    A certificate with wrong dates is a warning.

    Raises:
        ConfigError: the files cannot be used.
    """
    chain = _read("certificate", certificate)
    keys = chain if key is None else _read("key", key)
    try:
        # Without this a key with a passphrase would ask for it at the terminal, and a service would wait forever.
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (OSError, ValueError) as error:
        raise ConfigError(_fault(error, certificate, key, chain, keys)) from None
    _check_dates(certificate, chain)


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase; give a key without one")


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"the TLS {name} {path} cannot be read: {os.strerror(error.errno or 0)}") from None


def _fault(error: Exception, certificate: str, key: str | None, chain: bytes, keys: bytes) -> str:
    """Return the reason why the files cannot be used."""
    if not _CERTIFICATE.search(chain):
        return f"the TLS certificate {certificate} cannot be used: the file has no certificate in PEM form"
    if not _KEY.search(keys):
        missing = f"the file {key or certificate} has no private key in PEM form"
        return f"the TLS certificate {certificate} cannot be used: {missing}; give the key with --tls-key"
    if isinstance(error, ssl.SSLError) and error.reason in _MISMATCHES:
        return f"the TLS key {key or certificate} does not belong to the first certificate of {certificate}"
    return f"the TLS certificate {certificate} cannot be used: {error}"


def _check_dates(certificate: str, chain: bytes) -> None:
    """Warn if clients will not accept the certificate now."""
    from cryptography import x509  # noqa: PLC0415 - heavy, and only HTTPS needs it

    # Of a file that OpenSSL has accepted, the dates are only a hint.
    with contextlib.suppress(ValueError):
        first = x509.load_pem_x509_certificates(chain)[0]
        now = dt.datetime.fromtimestamp(SystemClock().wall(), dt.UTC)
        if now > first.not_valid_after_utc:
            LOGGER.warning(
                "the TLS certificate %s expired on %s: clients refuse it",
                certificate, first.not_valid_after_utc,
            )  # fmt: skip
        elif now < first.not_valid_before_utc:
            LOGGER.warning(
                "the TLS certificate %s is valid from %s on: clients refuse it before",
                certificate, first.not_valid_before_utc,
            )  # fmt: skip
