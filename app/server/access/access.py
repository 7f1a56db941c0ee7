"""One answer to who may do what, for every surface."""

from collections.abc import Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry

from app.protocols.caller import REQUEST_ID_HEADER, given_id
from app.protocols.permission import PERMISSIONS, Permission
from app.server.access.credentials import credential_of, unauthenticated
from app.server.access.identity import AccessError, Identity, Rate
from app.server.access.keys import Keys, read_keys
from app.server.access.rates import Rates
from app.server.access.refusals import Refusals
from app.server.access.watched_file import WatchedFile
from app.settings.access import AccessSettings
from app.settings.server import SettingsError
from tasks.exchange.error import ErrorKind

__all__ = ("Access", "Identifies", "open_access")

_CHARGED = frozenset({"infer", "admin"})
"""What reads is not counted: opening the page asks for forty files."""

_DOTS_OF_A_TOKEN = 2


class Identifies(Protocol):
    """Knows who shows what."""

    def identify(self, credential: str) -> Identity: ...


class Access:
    """Who may do what.

    Args:
        keys: None where there are none.
        tokens: None where there are none.
        rates: how often.
        refusals: are told.
    """

    def __init__(
        self,
        keys: "WatchedFile[Keys] | None",
        tokens: "WatchedFile[Identifies] | None",
        rates: Rates,
        refusals: Refusals,
    ) -> None:
        self._keys = keys
        self._tokens = tokens
        self._rates = rates
        self._refusals = refusals

    def admit(
        self,
        headers: Sequence[tuple[str, str]],
        permission: Permission,
        *,
        what: str,
        address: str = "",
        charged: bool = True,
    ) -> Identity:
        """Let somebody in who may have `permission`.

        Args:
            headers: or gRPC's metadata, with names in lower case.
            permission: any but ``open``.
            what: is asked for, for the log.
            address: where it comes from, for the log.
            charged: whether it counts among what the caller may ask in a second.

        Raises:
            AccessError: UNAUTHENTICATED, PERMISSION_DENIED, or OVERLOADED. It has been counted and logged.
        """
        try:
            return self.judge(headers, permission, charged=charged)
        except AccessError as error:
            self.tell(error, headers, what=what, address=address)
            raise

    def judge(self, headers: Sequence[tuple[str, str]], permission: Permission, *, charged: bool = True) -> Identity:
        """As `admit`, but what is refused is neither counted nor logged: `tell` has to follow.

        Raises:
            AccessError: UNAUTHENTICATED, PERMISSION_DENIED, or OVERLOADED.
        """
        identity = self.identify(headers)
        try:
            if permission not in identity.permissions:
                has = ", ".join(each for each in PERMISSIONS if each in identity.permissions) or "none"
                message = f"This needs the permission {permission}; {identity.name} has {has}"
                raise AccessError(ErrorKind.PERMISSION_DENIED, "permission", message)
            if charged and permission in _CHARGED:
                self._rates.charge(identity)
        except AccessError as error:
            error.client = identity.name
            raise
        return identity

    def tell(self, error: AccessError, headers: Sequence[tuple[str, str]], *, what: str, address: str) -> None:
        """Count and log a refusal.

        Args:
            error: why; it knows afterwards whether it was logged.
            headers: of the request, or gRPC's metadata.
            what: was asked for.
            address: where it came from.
        """
        request_id = given_id(dict(headers).get(REQUEST_ID_HEADER)) or ""
        self._refusals.tell(error, what=what, address=address, request_id=request_id)

    def identify(self, headers: Sequence[tuple[str, str]]) -> Identity:
        """Who sends `headers`.

        Raises:
            AccessError: UNAUTHENTICATED; neither counted nor logged.
        """
        credential = credential_of(headers)
        if self._tokens is not None and credential.count(".") == _DOTS_OF_A_TOKEN:
            return self._tokens.value.identify(credential)
        if self._keys is None:
            raise unauthenticated("malformed", "Expected a JSON Web Token, got something else")
        return self._keys.value.identify(credential)


def open_access(settings: AccessSettings, metrics: CollectorRegistry) -> Access | None:
    """Who may do what by `settings`; None where everybody may do everything.

    Raises:
        SettingsError: for what cannot be read, or does not fit together.
    """
    if settings.api_keys is None and settings.jwks is None:
        _none_wanted(settings)
        return None
    everybody = None
    if settings.requests_per_second is not None:
        burst = settings.burst or max(1, round(settings.requests_per_second))
        everybody = Rate(per_second=settings.requests_per_second, burst=burst)
    elif settings.burst is not None:
        raise SettingsError("--burst needs --requests-per-second")
    keys, tokens = None, _tokens(settings)
    if settings.api_keys is not None:
        keys = WatchedFile(settings.api_keys, lambda content: Keys(read_keys(content)))
    return Access(keys, tokens, Rates(everybody), Refusals(metrics))


def _none_wanted(settings: AccessSettings) -> None:
    given: Sequence[tuple[str, object]] = (
        ("--requests-per-second", settings.requests_per_second),
        ("--burst", settings.burst),
    )
    for name, value in given:
        if value is not None:
            raise SettingsError(f"{name} needs --api-keys or --jwks: without them callers cannot be told apart")
    for name, value in (("--jwt-issuer", settings.jwt_issuer), ("--jwt-audience", settings.jwt_audience)):
        if value is not None:
            raise SettingsError(f"{name} needs --jwks")


def _tokens(settings: AccessSettings) -> "WatchedFile[Identifies] | None":
    issuer, audience = settings.jwt_issuer, settings.jwt_audience
    if settings.jwks is None:
        if issuer is not None or audience is not None:
            raise SettingsError(f"{'--jwt-issuer' if issuer is not None else '--jwt-audience'} needs --jwks")
        return None
    if not issuer or not audience:
        raise SettingsError(
            "--jwks needs --jwt-issuer and --jwt-audience: a token for another service is not for this one"
        )
    try:
        from app.server.access.tokens import Tokens, read_key_set
    except ImportError as error:
        raise SettingsError(f"--jwks needs the extra jwt, pip install charioteer[jwt] ({error})") from None

    def read(content: bytes) -> Identifies:
        return Tokens(read_key_set(content), issuer, audience)

    return WatchedFile(settings.jwks, read)
