"""The claims of a verified token: the rules that they must keep, and the principal that they describe. Pure.

A token with a valid signature is still checked against every rule: an authorization server signs tokens for many
servers, and a token for another server must not be accepted here.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.auth import Principal
from limpet.config import KIB
from limpet.errors import ConfigError
from limpet.wire.shape import counted_cost

Claims = dict[str, Any]

MOST_BYTES: Final = 128 * KIB
"""The most memory of the claims of one token."""
_LAST: Final = 1e15
"""No date is later, in seconds."""


class Rules(Struct, frozen=True, kw_only=True):
    """The required claims of a token."""

    issuer: str = ""
    """Empty: the issuer is not checked, because the token was checked by the issuer itself."""
    audiences: frozenset[str]
    """One of them must be named: a token for another server is not accepted."""
    leeway: float = 30.0
    """Seconds by which the clocks of the two servers may differ."""
    needs_expiry: bool = True


def read_claims(data: bytes) -> tuple[Claims, int]:
    """Return the claims of a JSON text, and the memory that they take.

    Raises:
        ValueError: it is no object, or its claims would take more than `MOST_BYTES`.
    """
    size = counted_cost(data, len(data))
    if size > MOST_BYTES:
        raise ValueError("the claims of a token take too much memory")
    try:
        return msgspec.json.decode(data, type=Claims), size
    except RecursionError:
        raise ValueError("the claims of a token are nested too deeply") from None


def audiences_of(audience: str | Sequence[str], verifier: str) -> list[str]:
    """Return the audiences that a verifier was given. `verifier` names it in an error.

    Raises:
        ConfigError: there is none, or one is empty.
    """
    audiences = [audience] if isinstance(audience, str) else [*audience]
    if not audiences or not all(audiences):
        raise ConfigError(f"{verifier} needs an audience: the URL of this server, as clients know it")
    return audiences


def refused(claims: Claims, rules: Rules, now: float) -> str:
    """Return the name of the first claim that breaks a rule; empty if all rules are kept."""
    return next((name for name, keeps in _RULES if not keeps(claims, rules, now)), "")


def principal_of(claims: Claims, rules: Rules) -> Principal:
    """Return the principal of claims that keep all rules."""
    return Principal(
        subject=claims["sub"],
        issuer=rules.issuer or _text(claims, "iss"),
        client=_text(claims, "client_id") or _text(claims, "azp"),
        scopes=scopes_of(claims),
        expires=float(claims["exp"]) + rules.leeway if "exp" in claims else None,
        claims=claims,
    )


def scopes_of(claims: Claims) -> frozenset[str]:
    """Return the scopes: a text with spaces (`scope`, RFC 9068), or a list (`scp`, as some servers write)."""
    found = claims.get("scope", claims.get("scp"))
    if isinstance(found, str):
        return frozenset(found.split())
    return (
        frozenset(scope for scope in found if isinstance(scope, str))
        if isinstance(found, list)
        else frozenset()
    )


def _text(claims: Claims, name: str) -> str:
    value = claims.get(name)
    return value if isinstance(value, str) and "\0" not in value else ""


def _is_time(value: object) -> bool:
    # NaN is not a valid JSON number, so the decoder has refused it. A number that is no date may be too large for a
    # float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LAST


def _keeps_issuer(claims: Claims, rules: Rules, now: float) -> bool:  # noqa: ARG001
    return not rules.issuer or claims.get("iss") == rules.issuer


def _keeps_audience(claims: Claims, rules: Rules, now: float) -> bool:  # noqa: ARG001
    named = claims.get("aud")
    every = named if isinstance(named, list) else [named]
    return any(isinstance(one, str) and one in rules.audiences for one in every)


def _keeps_subject(claims: Claims, rules: Rules, now: float) -> bool:  # noqa: ARG001
    return bool(_text(claims, "sub"))


def _keeps_expiry(claims: Claims, rules: Rules, now: float) -> bool:
    if "exp" not in claims:
        return not rules.needs_expiry
    return _is_time(claims["exp"]) and now < claims["exp"] + rules.leeway


def _keeps_beginning(claims: Claims, rules: Rules, now: float) -> bool:
    return all(
        name not in claims or (_is_time(claims[name]) and claims[name] - rules.leeway <= now)
        for name in ("nbf", "iat")
    )


_RULES: Final[tuple[tuple[str, Callable[[Claims, Rules, float], bool]], ...]] = (
    ("iss", _keeps_issuer),
    ("aud", _keeps_audience),
    ("sub", _keeps_subject),
    ("exp", _keeps_expiry),
    ("nbf", _keeps_beginning),
)
