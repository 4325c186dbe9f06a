"""The operator's key, and sealed texts: they can be opened only for the message and the replica that they were made for."""

import base64
from itertools import pairwise

import pytest

from limpet import ConfigError, Remote
from limpet.auth.forward_key import CredentialSealer, ForwardKey, new_key
from limpet.testing import SeededRandom

OLD, NEW = new_key(SeededRandom(1)), new_key(SeededRandom(2))
HEADERS = {"authorization": "Bearer secret", "cookie": "sid=ü"}
MESSAGE = b'{"type":"submit","session":"s","stream":"t"}'


def credentials(*keys: str) -> CredentialSealer:
    return CredentialSealer(ForwardKey(" ".join(keys)) if keys else None, SeededRandom(3))


def test_headers_are_opened_by_the_replica_they_were_sealed_for() -> None:
    payload = credentials(OLD).attach(MESSAGE, HEADERS, replica="one")
    assert b"secret" not in payload
    assert credentials(OLD).detach(payload, replica="one") == (MESSAGE, HEADERS)


def test_another_replica_another_message_and_another_key_open_nothing() -> None:
    payload = credentials(OLD).attach(MESSAGE, HEADERS, replica="one")
    sealed = payload.partition(b"\n")[0]
    other = MESSAGE.replace(b"submit", b"notify")
    assert credentials(OLD).detach(payload, replica="two") == (MESSAGE, None)
    assert credentials(OLD).detach(sealed + b"\n" + other, replica="one") == (other, None)
    assert credentials(NEW).detach(payload, replica="one") == (MESSAGE, None)
    assert credentials().detach(payload, replica="one") == (MESSAGE, None)
    assert credentials(OLD).detach(b"sealed nonsense", replica="one") == (b"", None)


def test_a_key_is_replaced_while_replicas_with_either_run() -> None:
    steps = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
    for before, after in pairwise(steps):
        for sender, receiver in ((before, after), (after, before)):
            payload = credentials(*sender).attach(MESSAGE, HEADERS, replica="one")
            assert credentials(*receiver).detach(payload, replica="one") == (MESSAGE, HEADERS)


def test_nothing_is_attached_without_a_key_or_without_credentials() -> None:
    assert credentials().attach(MESSAGE, HEADERS, replica="one") == MESSAGE
    assert credentials(OLD).attach(MESSAGE, {}, replica="one") == MESSAGE
    assert credentials(OLD).detach(MESSAGE, replica="one") == (MESSAGE, {})


@pytest.mark.parametrize("kind", [base64.b64encode, base64.urlsafe_b64encode])
def test_both_alphabets_of_base64_are_read_with_and_without_padding(kind: object) -> None:
    assert callable(kind)
    text = kind(b"\xff\xfe" * 16).decode()
    for written in (text, text.rstrip("="), f"  {text}\n"):
        assert ForwardKey(written).keys == [b"\xff\xfe" * 16]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n,", "is empty"),
        ("secretpassword", "not base64|has 10 bytes"),
        ("secret!password", "not base64"),
        (base64.b64encode(b"secret" * 2).decode(), "has 12 bytes and needs 32"),
        (f"{OLD} {base64.b64encode(b'x' * 33).decode()}", "key 2 of 2, has 33 bytes"),
        ("sécret", "not base64"),
    ],
)
def test_what_is_no_key_is_refused_and_not_repeated(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        ForwardKey(text, "LIMPET_FORWARD_KEY")
    message = str(refused.value)
    assert message.startswith("LIMPET_FORWARD_KEY")
    assert "openssl rand -base64 32" in message
    assert not text.strip(" \n,") or text not in message


def test_a_key_is_never_shown() -> None:
    key = ForwardKey(OLD)
    for shown in (repr(key), str(key), repr(Remote("http://localhost/mcp", forward_key=OLD))):
        assert OLD not in shown
        assert str(base64.b64decode(OLD)) not in shown
