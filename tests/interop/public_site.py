"""A real nginx with the shipped configuration: it ends TLS under a public name that only the clients of a test know.

The name is in no DNS: a client program gets a small module that resolves it to this machine, and trusts the certificate.
"""

import contextlib
import datetime as dt
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import Struct

from tests.http.serving import ROOT
from tests.nginx import nginx
from tools.ports import free_port

NAME: Final = "mcp.example.test"
_SHIPPED: Final = ROOT / "deploy" / "nginx.conf"
_PYTHON: Final = f"""
import socket
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **named: resolve(
    "127.0.0.1" if host in ({NAME!r}, {NAME.encode()!r}) else host, *rest, **named
)
"""
_NODE: Final = f"""
const dns = require('dns');
const resolve = dns.lookup;
dns.lookup = (host, ...rest) => resolve(host === {NAME!r} ? '127.0.0.1' : host, ...rest);
"""


class Site(Struct, frozen=True):
    """An address under the public name."""

    port: int
    directory: Path

    @classmethod
    def made(cls, directory: Path) -> "Site":
        """Choose a port; make a certificate, and the modules that resolve the name."""
        _certify(directory)
        (directory / "sitecustomize.py").write_text(_PYTHON)
        (directory / "names.cjs").write_text(_NODE)
        return cls(free_port(), directory)

    @property
    def url(self) -> str:
        return f"https://{NAME}:{self.port}/mcp"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which a client program finds the name and trusts it."""
        return {
            "SSL_CERT_FILE": str(self.certificate),
            "PYTHONPATH": f"{self.directory}{os.pathsep}{ROOT}",
            "NODE_EXTRA_CA_CERTS": str(self.certificate),
            "NODE_OPTIONS": f"--require={self.directory / 'names.cjs'}",
        }

    @property
    def certificate(self) -> Path:
        return self.directory / "fullchain.pem"

    @contextlib.contextmanager
    def known_here(self) -> Iterator[None]:
        """Let this process find and trust the name too."""
        resolve = socket.getaddrinfo

        def resolved(host: Any, *rest: Any, **named: Any) -> Any:
            return resolve("127.0.0.1" if host == NAME else host, *rest, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", resolved)
            patch.setenv("SSL_CERT_FILE", str(self.certificate))
            yield

    @contextlib.contextmanager
    def in_front_of(self, *ports: int) -> Iterator[None]:
        """Run nginx in front of these replicas."""
        with nginx(self.configured(*ports), self.port):
            yield

    def configured(self, *ports: int) -> str:
        """Return the shipped configuration with the values of this test, and nothing else changed."""
        config = _SHIPPED.read_text()
        servers = "\n".join(f"server 127.0.0.1:{port} max_fails=1 fail_timeout=2s;" for port in ports)
        for pattern, value in (
            (r"(    server 10\.\S+ .*\n)+", f"{servers}\n"),
            (r"listen 443 ssl;", f"listen 127.0.0.1:{self.port} ssl;"),
            (r"mcp\.example\.com", NAME),
            (r"/etc/ssl/mcp", str(self.directory)),
        ):
            config, count = re.subn(pattern, value, config)
            assert count, f"{pattern} is not in deploy/nginx.conf"
        return config


def _certify(directory: Path) -> None:
    """Write a certificate of the name, which signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = dt.datetime.now(dt.UTC)
    day = dt.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "fullchain.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "privkey.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
