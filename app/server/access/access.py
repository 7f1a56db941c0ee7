"""Authorize requests in one place for all protocols."""

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
from app.settings.extras import missing_extra
from app.settings.server import SettingsError
from tasks.exchange.error import ErrorKind

__all__ = ("Access", "Identifies", "open_access")

_CHARGED = frozenset({"infer", "admin"})
"""Permissions whose requests count against the rate. Reading does not: the page alone loads forty files."""

_TOKEN_DOTS = 2


class Identifies(Protocol):
    """Finds the identity behind a credential."""

    def identify(self, credential: str) -> Identity: ...


class Access:
    """Authenticate and authorize requests.

    Args:
        keys: the API keys; None without a key file.
        tokens: reads JSON Web Tokens; None without a key set.
        rates: limits the rate of each client.
        refusals: counts and logs rejections.
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
        """Return the identity of a request that may have `permission`; otherwise count and log the rejection.

        Args:
            headers: headers or gRPC metadata, names in lower case.
            permission: the required permission, not ``open``.
            what: the requested operation, for the log.
            address: IP address of the client, for the log.
            charged: whether the request counts against the client's rate.

        Raises:
            AccessError: UNAUTHENTICATED, PERMISSION_DENIED or OVERLOADED; it is already counted and logged.
        """
        try:
            return self.judge(headers, permission, charged=charged)
        except AccessError as error:
            self.tell(error, headers, what=what, address=address)
            raise

    def judge(self, headers: Sequence[tuple[str, str]], permission: Permission, *, charged: bool = True) -> Identity:
        """Authorize as `admit` does, but neither count nor log a rejection: call `tell` after it.

        Raises:
            AccessError: UNAUTHENTICATED, PERMISSION_DENIED, or OVERLOADED.
        """
        identity = self.identify(headers)
        try:
            if permission not in identity.permissions:
                has = ", ".join(known for known in PERMISSIONS if known in identity.permissions) or "none"
                message = f"This needs the permission {permission}; {identity.name} has {has}"
                raise AccessError(ErrorKind.PERMISSION_DENIED, "permission", message)
            if charged and permission in _CHARGED:
                self._rates.charge(identity)
        except AccessError as error:
            error.client = identity.name
            raise
        return identity

    def tell(self, error: AccessError, headers: Sequence[tuple[str, str]], *, what: str, address: str) -> None:
        """Count and log a rejection.

        Args:
            error: the rejection; its `logged` is updated.
            headers: headers of the request, or gRPC metadata.
            what: the requested operation.
            address: IP address of the client.
        """
        request_id = given_id(dict(headers).get(REQUEST_ID_HEADER)) or ""
        self._refusals.tell(error, what=what, address=address, request_id=request_id)

    def identify(self, headers: Sequence[tuple[str, str]]) -> Identity:
        """Return the identity of the client that sent `headers`.

        Raises:
            AccessError: UNAUTHENTICATED; neither counted nor logged.
        """
        credential = credential_of(headers)
        if self._tokens is not None and credential.count(".") == _TOKEN_DOTS:
            return self._tokens.value.identify(credential)
        if self._keys is None:
            raise unauthenticated("malformed", "Expected a JSON Web Token, got something else")
        return self._keys.value.identify(credential)


def open_access(settings: AccessSettings, metrics: CollectorRegistry) -> Access | None:
    """Create the authorization from `settings`; return None if no authentication is configured.

    Raises:
        SettingsError: if files are not readable, or options contradict each other.
    """
    if settings.api_keys is None and settings.jwks is None:
        _reject_dependent_options(settings)
        return None
    default_rate = None
    if settings.requests_per_second is not None:
        burst = settings.burst or max(1, round(settings.requests_per_second))
        default_rate = Rate(per_second=settings.requests_per_second, burst=burst)
    elif settings.burst is not None:
        raise SettingsError("--burst needs --requests-per-second")
    keys, tokens = None, _tokens(settings)
    if settings.api_keys is not None:
        keys = WatchedFile(settings.api_keys, lambda content: Keys(read_keys(content)))
    return Access(keys, tokens, Rates(default_rate), Refusals(metrics))


def _reject_dependent_options(settings: AccessSettings) -> None:
    given: Sequence[tuple[str, object]] = (
        ("--requests-per-second", settings.requests_per_second),
        ("--burst", settings.burst),
    )
    for name, value in given:
        if value is not None:
            raise SettingsError(f"{name} needs --api-keys or --jwks: without them, clients cannot be distinguished")
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
        raise SettingsError(missing_extra("--jwks", "jwt", error)) from None

    def read(content: bytes) -> Identifies:
        return Tokens(read_key_set(content), issuer, audience)

    return WatchedFile(settings.jwks, read)
