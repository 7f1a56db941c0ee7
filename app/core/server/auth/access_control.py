"""Authorize requests in one place for all protocols."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry

from app.core.engine.scheduling.token_bucket import make_rate
from app.core.protocols.protocol import PERMISSIONS, Permission
from app.core.server.auth.api_keys import ApiKeys, read_keys
from app.core.server.auth.audit import RejectionLog
from app.core.server.auth.credentials import AccessError, Identity, credential_of, unauthenticated
from app.core.server.auth.rate_limiter import RateLimiter
from app.core.server.auth.watched_file import WatchedFile
from app.core.settings.network import AccessSettings
from app.core.settings.server import SettingsError
from tasks.inference.error import ErrorKind

_RATE_LIMITED_PERMISSIONS = frozenset({"infer", "label", "admin"})
"""Permissions whose requests count against the rate. Reading does not: the page alone loads forty files."""


class IdentityProvider(Protocol):
    """Finds the identity behind a credential that is no API key."""

    @property
    def credential(self) -> str:
        """Return what it expects, for error messages: ``a JSON Web Token``."""
        ...

    def identify(self, credential: str) -> Identity | None:
        """Return the identity of a credential; None if it is of another kind.

        Raise UNAUTHENTICATED with the reason, if it is not valid.
        """
        ...


@dataclass(frozen=True)
class AccessControl:
    """Authenticate and authorize requests.

    Counting and logging rejections with `rejection_log` is up to the caller of `authorize`.
    """

    keys: WatchedFile[ApiKeys] | None
    identities: IdentityProvider | None
    rate_limiter: RateLimiter
    rejection_log: RejectionLog

    def authorize(self, headers: Sequence[tuple[str, str]], permission: Permission) -> Identity:
        """Return the identity of a request that may have `permission`, which is not ``open``.

        The request counts against the client's rate. A rejection is neither counted nor logged: pass it to
        `rejection_log`. The names of headers, or of gRPC metadata, are in lower case. Raise UNAUTHENTICATED,
        PERMISSION_DENIED, or OVERLOADED.
        """
        identity = self.identify(headers)
        try:
            if permission not in identity.permissions:
                granted = ", ".join(name for name in PERMISSIONS if name in identity.permissions) or "none"
                message = f"This needs the permission {permission}; {identity.name} has {granted}"
                raise AccessError(ErrorKind.PERMISSION_DENIED, "permission", message)
            if permission in _RATE_LIMITED_PERMISSIONS:
                self.rate_limiter.consume(identity)
        except AccessError as error:
            error.client = identity.name
            raise
        return identity

    def identify(self, headers: Sequence[tuple[str, str]]) -> Identity:
        """Return the identity of the client that sent `headers`. Raise UNAUTHENTICATED; neither counted nor logged."""
        credential = credential_of(headers)
        expected = "a key"
        if self.identities is not None:
            if (identity := self.identities.identify(credential)) is not None:
                return identity
            expected = self.identities.credential
        if self.keys is None:
            raise unauthenticated("malformed", f"Expected {expected}, got something else")
        return self.keys.value.identify(credential)


def open_access_control(
    settings: AccessSettings, metrics: CollectorRegistry, identities: IdentityProvider | None = None
) -> AccessControl | None:
    """Create the authorization from `settings`; return None if no authentication is configured.

    A plugin adds `identities`. Raise SettingsError if the file of keys is not readable, or options contradict
    each other.
    """
    per_second, burst = settings.requests_per_second, settings.burst
    if settings.api_keys is None and identities is None:
        for name, value in (("--requests-per-second", per_second), ("--burst", burst)):
            if value is not None:
                message = f"{name} needs --api-keys or --jwks: without them, clients cannot be distinguished"
                raise SettingsError(message)
        return None
    if per_second is None and burst is not None:
        raise SettingsError("--burst needs --requests-per-second")
    keys = None
    if settings.api_keys is not None:
        keys = WatchedFile(settings.api_keys, lambda content: ApiKeys(read_keys(content)), "--api-keys")
    return AccessControl(keys, identities, RateLimiter(make_rate(per_second, burst)), RejectionLog(metrics))
