"""The accounts of users at a server behind, in the store: their tokens, and the sign-ins that wait for their users.

Every replica that shares the store serves them. All values are sealed under the operator's key for credentials
(`auth/forward_key.py`), which is not in the store: a reader of the store cannot act as a user. The principal and the
name of the field are associated data of the cipher, so a value cannot be moved to another principal or field.

The values of a principal are fields of one area of state, which only this principal has. An area is deleted when it was
not used for KEPT_SECONDS; then the user signs in again. The registration of Limpet at an authorization server belongs
to no user: it has an area of its own.

    field        value                                      written by
    ─────────    ───────────────────────────────────────    ─────────────────────────────────────────────────────
    tokens …     the credentials for one server behind      the replica that has got or renewed tokens
    sign-in …    a `WaitingSignIn`: it waits for its user   the first replica whose request needs the user; the
                                                            replica that receives the browser takes it away
    turn …       until when a replica renews tokens         compare-and-set: a refresh token may be used once only

Each of them is for one server behind, whose URL is in its name as a hash: several servers at one address share the
store.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import msgspec
from msgspec import Struct

from limpet.auth.forward_key import ForwardKey
from limpet.auth.oauth.challenges import OAuthChallenge
from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.pkce import Begun
from limpet.auth.oauth.storage import Credentials, ServerCredentials
from limpet.auth.seal import Sealer
from limpet.core.rules.areas import own_area
from limpet.errors import NotSent, SessionGone, StateError, StoreError
from limpet.ports import Clock, Random
from limpet.stores.base.state import StatePart

KEPT_SECONDS: Final = 90 * 86_400.0
"""How long the account of a user who does not use it is kept."""
TURN_SECONDS: Final = 30.0
"""How long a replica may take to renew tokens. After its death another one does it."""
_PAUSE: Final = 0.25
_PURPOSE: Final = "accounts at a server behind"
_LONGEST: Final = 64 * 1024
_APPLICATION: Final = "limpet:application"
"""The owner of the registrations, in place of a principal."""
_AWAY: Final = "the store that has the accounts of users cannot be used"


class WaitingSignIn(Struct, frozen=True, kw_only=True):
    """A sign-in that waits for its user: all that another replica needs to finish it."""

    server: str
    """The URL of the server behind."""
    demand: OAuthChallenge
    """Its refusal."""
    url: str
    """The page at which the user agrees."""
    begun: Begun
    until: float
    """The time of the day at which it ends."""

    def __repr__(self) -> str:
        return f"<WaitingSignIn at {self.server}>"


class Vault:
    """The sealed values of all principals."""

    def __init__(
        self, state: StatePart, key: ForwardKey | None, server: str, ports: tuple[Clock, Random]
    ) -> None:
        """Keep them in this state. Without a key, which only a store of this process allows, one is made.

        server   the URL of the server behind
        """
        self._state = state
        self._sign_in = _field("sign-in", server)
        self._turn = _field("turn", server)
        self.clock: Clock = ports[0]
        self._random = ports[1]
        self._sealer = Sealer(self._random, _PURPOSE, key.keys if key is not None else (), longest=_LONGEST)

    async def read(self, principal: str, field: str) -> tuple[bytes | None, int]:
        """Return a value and its version. No value: it is absent, or was sealed with another key.

        Raises:
            NotSent: the store cannot be reached.
        """
        area = _area(principal)
        try:
            if not await self._state.find_area(area, principal):
                return None, 0
            cell = await self._state.get_state(area, field)
        except SessionGone:
            return None, 0
        except StoreError as error:
            raise NotSent(_AWAY) from error
        if cell is None:
            return None, 0
        return self._sealer.open(cell.value.decode("latin-1"), _about(principal, field)), cell.version

    async def write(
        self, principal: str, field: str, value: bytes | None, version: int | None = None
    ) -> bool:
        """Keep a value, or delete it. False: it has not this version any more, and nothing was changed.

        Raises:
            NotSent: the store cannot be reached, or has no room.
        """
        area = _area(principal)
        sealed = None if value is None else self._sealer.seal(value, _about(principal, field)).encode()
        try:
            if not await self._state.open_area(area, principal, KEPT_SECONDS):
                raise NotSent("the store has no room for another account of a user")
            changed = await self._state.set_state(
                area, field, sealed, op=self._random.token(12), version=version
            )
        except (StoreError, StateError, SessionGone) as error:
            raise NotSent(_AWAY) from error
        return changed >= 0

    @asynccontextmanager
    async def turn(self, principal: str) -> AsyncIterator[None]:
        """Wait until no other replica renews the tokens of a principal."""
        until = await self._take_turn(principal)
        try:
            yield
        finally:
            value, version = await self.read(principal, self._turn)
            if value == until:
                await self.write(principal, self._turn, None, version)

    async def _take_turn(self, principal: str) -> bytes:
        while True:
            value, version = await self.read(principal, self._turn)
            now = self.clock.wall()
            if value is None or float(value) <= now:
                until = repr(now + TURN_SECONDS).encode()
                if await self.write(principal, self._turn, until, version):
                    return until
            await asyncio.sleep(_PAUSE)

    # Sign-ins

    async def waiting(self, principal: str) -> tuple[WaitingSignIn | None, int]:
        """Return the sign-in that waits for its user, and its version."""
        value, version = await self.read(principal, self._sign_in)
        if value is None:
            return None, version
        found = msgspec.json.decode(value, type=WaitingSignIn)
        return (found if found.until > self.clock.wall() else None), version

    async def begin(self, principal: str, sign_in: WaitingSignIn) -> WaitingSignIn:
        """Keep a sign-in, unless one waits already; return the one that waits."""
        while True:
            found, version = await self.waiting(principal)
            if found is not None:
                return found
            if await self.write(principal, self._sign_in, msgspec.json.encode(sign_in), version):
                return sign_in

    async def take(self, principal: str, version: int) -> bool:
        """Remove the sign-in of this version: only the replica that has removed it may use its code."""
        return await self.write(principal, self._sign_in, None, version)


class KeptTokens:
    """The tokens of one principal; see `TokenStorage`. All principals share the registration of the application."""

    def __init__(self, vault: Vault, principal: str, registered: "Registrations") -> None:
        self._vault = vault
        self._principal = principal
        self._registered = registered

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Wait until no other replica renews these tokens."""
        return self._vault.turn(self._principal)

    async def load(self, server: str, issuer: str | None = None) -> Credentials | None:
        found, _ = await self._read(server)
        kept = None if found is None else found.find(issuer)
        if (
            kept is None
            and issuer is not None
            and (client := await self._registered.find(issuer)) is not None
        ):
            return Credentials(issuer=issuer, resource="", client=client)
        return kept

    async def save(self, server: str, kept: Credentials) -> None:
        await self._registered.keep(kept.issuer, kept.client)
        while True:
            found, version = await self._read(server)
            changed = (found or ServerCredentials(server, kept.issuer, {})).with_one(kept)
            if await self._vault.write(
                self._principal, _field("tokens", server), msgspec.json.encode(changed), version
            ):
                return

    async def _read(self, server: str) -> tuple[ServerCredentials | None, int]:
        value, version = await self._vault.read(self._principal, _field("tokens", server))
        return (None if value is None else msgspec.json.decode(value, type=ServerCredentials)), version


class Registrations:
    """The registrations of Limpet at authorization servers, which all users share. One is for one redirect URI."""

    def __init__(self, vault: Vault, redirect_uri: str) -> None:
        self._vault = vault
        self._redirect_uri = redirect_uri

    async def find(self, issuer: str) -> ClientIdentity | None:
        """Return the registration at an authorization server."""
        value, _ = await self._vault.read(_APPLICATION, self._field(issuer))
        return None if value is None else msgspec.json.decode(value, type=ClientIdentity)

    async def keep(self, issuer: str, client: ClientIdentity | None) -> None:
        """Keep a registration, or forget it."""
        value = None if client is None else msgspec.json.encode(client)
        await self._vault.write(_APPLICATION, self._field(issuer), value)

    def _field(self, issuer: str) -> str:
        return _field("client", f"{issuer} {self._redirect_uri}")


def _area(principal: str) -> str:
    return own_area(f"account {principal}")


def _about(principal: str, field: str) -> bytes:
    return f"{principal}\0{field}".encode()


def _field(kind: str, subject: str) -> str:
    return f"{kind} {hashlib.sha256(subject.encode()).hexdigest()}"
