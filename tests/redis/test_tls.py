"""TLS to Redis: both sides show a certificate, and an untrusted side gets nothing."""

import datetime as dt
import ipaddress
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from limpet.errors import StoreUnavailable
from limpet.stores.base import Claim, Claimed
from limpet.stores.redis import core
from limpet.stores.redis.store import RedisStore
from limpet.stores.urls import open_store
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.redis_server import RedisServer, needs_redis
from tests.support import async_test, wait_until
from tools.ports import free_port

pytestmark = needs_redis


class Authority:
    """A certificate authority. A side that names its file trusts it."""

    def __init__(self, home: Path, name: str) -> None:
        self._home = home
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = home / f"{name}.pem"
        self.file.write_bytes(_text(self._signed(self._name, self._key, is_authority=True)))

    def certify(self, name: str) -> tuple[Path, Path]:
        """Return the files of a certificate for this host, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate, secret = self._home / f"{name}.crt", self._home / f"{name}.key"
        certificate.write_bytes(_text(self._signed(subject, key, is_authority=False)))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, secret

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(address, critical=False)
            # Python 3.13 verifies strictly: these extensions are then required.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_usage(is_authority=is_authority), critical=True)
            .sign(self._key, hashes.SHA256())
        )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _text(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


class Guarded(NamedTuple):
    """A Redis that demands certificates, and the options to reach it."""

    address: str
    ca: str
    stranger: str
    own: str
    sentinel: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    home = tmp_path_factory.mktemp("tls")
    authority, stranger = Authority(home, "authority"), Authority(home, "stranger")
    certificate, key = authority.certify("server")
    port, sentinel_port = free_port(), free_port()
    files = [
        *("--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
        *("--tls-ca-cert-file", str(authority.file), "--tls-auth-clients", "yes"),
    ]
    server = RedisServer(
        home / "redis",
        *("--tls-port", str(port), *files),
        # A cluster of one, so that the same server is asked both ways.
        *("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--tls-cluster", "yes"),
        *("--cluster-port", str(free_port())),
    )
    try:
        assert server.tell("CLUSTER", "ADDSLOTSRANGE", "0", "16383") == "OK"
        wait_until(lambda: "cluster_state:ok" in server.tell("CLUSTER", "INFO"))
        certificate, key = authority.certify("client")
        own = f"ssl_certfile={certificate}&ssl_keyfile={key}"
        watch = f"sentinel monitor mymaster 127.0.0.1 {port} 1\n"
        options = ("--tls-port", str(sentinel_port), "--tls-replication", "yes", *files)
        watcher = RedisServer(home / "sentinel", *options, sentinel=watch)
        yield Guarded(
            f"127.0.0.1:{port}",
            f"ssl_ca_certs={authority.file}",
            f"ssl_ca_certs={stranger.file}",
            own,
            f"127.0.0.1:{sentinel_port}",
        )
        watcher.stop()
    finally:
        server.stop()


DIRECT: Final = ["rediss://{0.address}?", "redis+cluster://{0.address}?ssl=1&"]


@pytest.mark.parametrize(
    "scheme", [*DIRECT, "valkeys://{0.address}?", "redis+sentinel://{0.sentinel}/mymaster?ssl=1&"]
)
@async_test
async def test_a_store_works_over_tls_with_a_certificate_of_its_own(guarded: Guarded, scheme: str) -> None:
    url = f"{scheme.format(guarded)}{guarded.ca}&{guarded.own}"
    store = open_store(url, namespace=scheme.partition(":")[0].replace("+", "-"))
    async with aclosing(store):
        assert isinstance(store, RedisStore)
        store.bind(lambda what, key, name: None)  # noqa: ARG005
        await store.heard()
        await store.check()
        await store.renew(10)
        await store.open(record(), evict=False)
        claimed = await store.claim(KEY, PRINCIPAL, Claim(1, "a", b""))
        assert isinstance(claimed, Claimed)
        await store.settle(KEY, "a", claimed.fence, b"last", tag=1, keep=True)
        assert await store.find(KEY, PRINCIPAL) is not None


@pytest.mark.parametrize("scheme", DIRECT)
@async_test
async def test_a_redis_with_an_untrusted_certificate_is_not_used(
    guarded: Guarded, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PATIENCE", 0.1)
    for believed in (guarded.stranger, ""):
        store = RedisStore(f"{scheme.format(guarded)}{believed}&{guarded.own}")
        async with aclosing(store):
            with pytest.raises(
                StoreUnavailable, match=r"certificate verify failed|Cluster cannot be connected"
            ):
                await store.check()
            with pytest.raises(StoreUnavailable):
                await store.find(KEY, PRINCIPAL)


@async_test
async def test_a_redis_that_requires_a_certificate_refuses_a_client_without_one(guarded: Guarded) -> None:
    store = RedisStore(f"rediss://{guarded.address}?{guarded.ca}")
    async with aclosing(store):
        with pytest.raises(StoreUnavailable):
            await store.find(KEY, PRINCIPAL)
