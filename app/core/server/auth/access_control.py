"""Authorize requests in one place for all protocols."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry

from app.core.engine.error_text import needs_extra
from app.core.protocols.protocol import PERMISSIONS, Permission
from app.core.server.auth.api_keys import ApiKeys, read_keys
from app.core.server.auth.audit import RejectionLog
from app.core.server.auth.credentials import AccessError, Identity, credential_of, make_rate, unauthenticated
from app.core.server.auth.rate_limiter import RateLimiter
from app.core.server.auth.watched_file import WatchedFile
from app.core.settings.network import AccessSettings
from app.core.settings.server import SettingsError
from tasks.inference.error import ErrorKind

_RATE_LIMITED_PERMISSIONS = frozenset({"infer", "admin"})
"""Permissions whose requests count against the rate. Reading does not: the page alone loads forty files."""

_JWT_DOTS = 2


class IdentityProvider(Protocol):
    """Finds the identity behind a credential."""

    def identify(self, credential: str) -> Identity: ...


@dataclass(frozen=True)
class AccessControl:
    """Authenticate and authorize requests.

    Counting and logging rejections with `rejection_log` is up to the caller of `authorize`.
    """

    keys: WatchedFile[ApiKeys] | None
    tokens: WatchedFile[IdentityProvider] | None
    rate_limiter: RateLimiter
    rejection_log: RejectionLog

    def authorize(
        self, headers: Sequence[tuple[str, str]], permission: Permission, *, rate_limited: bool = True
    ) -> Identity:
        """Return the identity of a request that may have `permission`, which is not ``open``.

        A rejection is neither counted nor logged: pass it to `rejection_log`. The names of headers, or of gRPC
        metadata, are in lower case. With `rate_limited`, the request counts against the client's rate.

        Raises:
            AccessError: UNAUTHENTICATED, PERMISSION_DENIED, or OVERLOADED.
        """
        identity = self.identify(headers)
        try:
            if permission not in identity.permissions:
                granted = ", ".join(name for name in PERMISSIONS if name in identity.permissions) or "none"
                message = f"This needs the permission {permission}; {identity.name} has {granted}"
                raise AccessError(ErrorKind.PERMISSION_DENIED, "permission", message)
            if rate_limited and permission in _RATE_LIMITED_PERMISSIONS:
                self.rate_limiter.consume(identity)
        except AccessError as error:
            error.client = identity.name
            raise
        return identity

    def identify(self, headers: Sequence[tuple[str, str]]) -> Identity:
        """Return the identity of the client that sent `headers`.

        Raises:
            AccessError: UNAUTHENTICATED; neither counted nor logged.
        """
        credential = credential_of(headers)
        if self.tokens is not None and credential.count(".") == _JWT_DOTS:
            return self.tokens.value.identify(credential)
        if self.keys is None:
            raise unauthenticated("malformed", "Expected a JSON Web Token, got something else")
        return self.keys.value.identify(credential)


def open_access_control(settings: AccessSettings, metrics: CollectorRegistry) -> AccessControl | None:
    """Create the authorization from `settings`; return None if no authentication is configured.

    Raises:
        SettingsError: if files are not readable, or options contradict each other.
    """
    per_second, burst = settings.requests_per_second, settings.burst
    if settings.jwks is None:
        for name, value in (("issuer", settings.jwt_issuer), ("audience", settings.jwt_audience)):
            if value is not None:
                raise SettingsError(f"--jwt-{name} needs --jwks")
        if settings.api_keys is None:
            for name, value in (("--requests-per-second", per_second), ("--burst", burst)):
                if value is not None:
                    message = f"{name} needs --api-keys or --jwks: without them, clients cannot be distinguished"
                    raise SettingsError(message)
            return None
    if per_second is None and burst is not None:
        raise SettingsError("--burst needs --requests-per-second")
    keys, tokens = None, None if settings.jwks is None else _open_tokens(settings, settings.jwks)
    if settings.api_keys is not None:
        keys = WatchedFile(settings.api_keys, lambda content: ApiKeys(read_keys(content)))
    return AccessControl(keys, tokens, RateLimiter(make_rate(per_second, burst)), RejectionLog(metrics))


def _open_tokens(settings: AccessSettings, path: Path) -> WatchedFile[IdentityProvider]:
    issuer, audience = settings.jwt_issuer, settings.jwt_audience
    if not issuer or not audience:
        raise SettingsError(
            "--jwks needs --jwt-issuer and --jwt-audience: a token for another service is not for this one"
        )
    with needs_extra("--jwks", "jwt", SettingsError):
        from app.plugins.jwt.validator import JwtValidator, read_key_set

    def read_validator(content: bytes) -> IdentityProvider:
        return JwtValidator(read_key_set(content), issuer, audience)

    return WatchedFile(path, read_validator)
