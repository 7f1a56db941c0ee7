"""Authorize HTTP requests: a guard for every route of an application, and a check for endpoints of protocols."""

from collections.abc import Callable
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.types import Scope

from app.core.protocols.protocol import Permission
from app.core.protocols.request_info import CLIENT, REQUEST_ID_HEADER, RETRY_AFTER, address_of, set_response_header
from app.core.server.auth.access_control import AccessControl
from app.core.server.auth.audit import AUDITED
from app.core.server.auth.credentials import AUTHORIZATION, KEY_HEADER, AccessError, Identity
from app.core.server.http.request_rules import has_basic_credentials, is_reported_cross_site
from tasks.inference.error import ErrorKind

Connection = ASGIConnection[Any, Any, Any, Any]
RequiredPermission = Permission | Callable[[Any], Permission]

BY_ENDPOINT = "by endpoint"
"""Permission of a route that several endpoints share: `HttpAccess.admit` checks it once the endpoint is known."""

CHALLENGE = "www-authenticate"

_USED_HEADERS = {header.encode(): header for header in (AUTHORIZATION, KEY_HEADER, REQUEST_ID_HEADER)}
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_IDENTITY = "charioteer_identity"
_OPTION = "permission"
_BASIC = 'Basic realm="charioteer", charset="UTF-8"'
_BEARER = 'Bearer realm="charioteer"'


def requires(permission: RequiredPermission | str) -> dict[str, Any]:
    """Return the `opt` of a route that requires `permission`. A route without it requires ``admin``.

    The permission can be a function of the request that returns it, or `BY_ENDPOINT`.
    """
    return {_OPTION: permission}


class HttpAccess:
    """Admit or reject HTTP requests. Without `access`, all are admitted, and administration is still audited."""

    def __init__(self, access: AccessControl | None = None) -> None:
        self._access = access

    def secure(self, access: AccessControl | None) -> None:
        """Authorize by `access`. Call this before the first request, when plugins have started."""
        self._access = access

    async def guard(self, connection: Connection, handler: BaseRouteHandler) -> None:
        """Admit a request to a route. This is a Litestar guard, which runs before the body is read."""
        required: Any = handler.opt.get(_OPTION, "admin")
        # Litestar adds routes for OPTIONS, which list the methods of a path as 405 does.
        is_added = isinstance(handler, HTTPRouteHandler) and handler.http_methods == {"OPTIONS"}
        if required == BY_ENDPOINT or is_added:
            return
        permission: Any = required(connection) if callable(required) else required
        self.admit(connection.scope, permission)

    def admit(self, scope: Scope, permission: Permission) -> None:
        """Authorize a request that requires `permission`, and store its identity.

        Raise UNAUTHENTICATED, PERMISSION_DENIED, or OVERLOADED.
        """
        if permission == "open":
            return
        if permission == "admin":
            scope["state"][AUDITED] = True
        if self._access is not None:
            self._authorize(self._access, scope, permission)
        # Check this last: rejections of unknown clients are audited at a limited rate only.
        if permission == "admin" and _may_be_embedded(scope):
            message = "A page of another site could cause this GET request, so it changes nothing; use POST"
            raise AccessError(ErrorKind.PERMISSION_DENIED, "permission", message)

    def _authorize(self, access: AccessControl, scope: Scope, permission: Permission) -> None:
        headers = _used_headers(scope)
        try:
            identity = access.authorize(headers, permission)
        except AccessError as error:
            untyped_scope: Any = scope
            operation = f"{untyped_scope.get('method', '')} {scope['path']}"
            access.rejection_log.record(error, headers, operation=operation, address=address_of(scope))
            CLIENT.set(error.client)
            if not error.client and not error.logged:
                # Unknown clients must not fill the disk with audit lines.
                scope["state"].pop(AUDITED, None)
            _add_error_headers(scope, error)
            raise
        CLIENT.set(identity.name)
        scope["state"][_IDENTITY] = identity

    @property
    def requires_credentials(self) -> bool:
        """Return whether clients must authenticate."""
        return self._access is not None

    def allows(self, scope: Scope, permission: Permission) -> bool:
        """Return whether the client of a request also has `permission`."""
        if self._access is None:
            return True
        identity: Identity | None = scope["state"].get(_IDENTITY)
        if identity is None:
            try:
                identity = self._access.identify(_used_headers(scope))
            except AccessError:
                return False
        return permission in identity.permissions


def _used_headers(scope: Scope) -> list[tuple[str, str]]:
    return [(_USED_HEADERS[name], value.decode("latin-1")) for name, value in scope["headers"] if name in _USED_HEADERS]


def _may_be_embedded(scope: Scope) -> bool:
    """Return whether a page of another site could cause the request, as the address of an embedded image.

    Browsers add a stored password to such a request. They report its origin only over TLS and to this machine.
    """
    if scope["type"] != "http" or scope["method"] not in _SAFE_METHODS:
        return False
    headers = dict(scope["headers"])
    return has_basic_credentials(headers) or is_reported_cross_site(headers)


def _add_error_headers(scope: Scope, error: AccessError) -> None:
    if error.kind is ErrorKind.UNAUTHENTICATED:
        accepted = dict(scope["headers"]).get(b"accept", b"")
        # A Basic challenge makes browsers ask for a password, which scripts and other clients must not get.
        set_response_header(scope, CHALLENGE, _BASIC if b"text/html" in accepted else _BEARER)
    if error.retry_after is not None:
        set_response_header(scope, RETRY_AFTER, str(error.retry_after))
