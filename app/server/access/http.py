"""Who may do what over HTTP: a guard before every route of an application, and the same for endpoints of protocols."""

from collections.abc import Callable
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.types import Scope

from app.engine.admission import RETRY_AFTER
from app.protocols.caller import CLIENT, REQUEST_ID_HEADER, address_of, return_header
from app.protocols.permission import Permission
from app.server.access.access import Access
from app.server.access.audit import is_administration, is_one_of_too_many
from app.server.access.credentials import AUTHORIZATION, KEY_HEADER
from app.server.access.identity import AccessError, Identity
from app.server.cross_site import says_other_site, shows_password
from tasks.exchange.error import ErrorKind

__all__ = ("BY_ENDPOINT", "CHALLENGE", "HttpAccess", "needs")

Connection = ASGIConnection[Any, Any, Any, Any]
Needs = Permission | Callable[[Any], Permission]

BY_ENDPOINT = "by endpoint"
"""What a route needs on which several endpoints meet: `HttpAccess.admit` is asked once it is known which it is."""

CHALLENGE = "www-authenticate"

_LOOKED_FOR = {each.encode(): each for each in (AUTHORIZATION, KEY_HEADER, REQUEST_ID_HEADER)}
_GETTING = frozenset({"GET", "HEAD"})
_IDENTITY = "charioteer_identity"
_OPTION = "permission"
_UNCHARGED = "uncharged"
_BASIC = 'Basic realm="charioteer", charset="UTF-8"'
_BEARER = 'Bearer realm="charioteer"'


def needs(permission: Needs | str, *, charged: bool = True) -> dict[str, Any]:
    """The `opt` of a route that needs `permission`, or what that gives for a request. A route without needs ``admin``.

    Args:
        permission: or `BY_ENDPOINT`.
        charged: False where whatever the route asks in turn counts the request.
    """
    return {_OPTION: permission, _UNCHARGED: not charged}


class HttpAccess:
    """Lets requests in, or does not.

    Args:
        access: who may do what; None where everybody may do everything, and it is only written down who changed what.
    """

    def __init__(self, access: Access | None) -> None:
        self._access = access

    async def guard(self, connection: Connection, handler: BaseRouteHandler) -> None:
        """Let a request reach a route. A guard of Litestar, which runs before the body is read.

        Raises:
            AccessError: UNAUTHENTICATED, PERMISSION_DENIED, or OVERLOADED.
        """
        wanted: Any = handler.opt.get(_OPTION, "admin")
        if wanted == BY_ENDPOINT or _tells_methods(handler):
            return
        permission: Any = wanted(connection) if callable(wanted) else wanted
        self.admit(connection.scope, permission, charged=not handler.opt.get(_UNCHARGED, False))

    def admit(self, scope: Scope, permission: Permission, *, charged: bool = True) -> None:
        """Let a request in that needs `permission`; from then on it is known who sent it.

        Raises:
            AccessError: UNAUTHENTICATED, PERMISSION_DENIED, or OVERLOADED.
        """
        if permission == "open":
            return
        if permission == "admin":
            is_administration(scope)
        if self._access is not None:
            self._let_in(self._access, scope, permission, charged)
        # Only then: what is refused to somebody who is not known is written down seldom.
        if permission == "admin" and _may_be_a_picture(scope):
            message = "This is not changed by what a page of another site can have a browser get; send it with POST"
            raise AccessError(ErrorKind.PERMISSION_DENIED, "permission", message)

    def _let_in(self, access: Access, scope: Scope, permission: Permission, charged: bool) -> None:
        plain: Any = scope
        what = f"{plain.get('method', '')} {scope['path']}"
        try:
            identity = access.admit(_shown(scope), permission, what=what, address=address_of(scope), charged=charged)
        except AccessError as error:
            CLIENT.set(error.client)
            if not error.client and not error.logged:
                is_one_of_too_many(scope)
            _tell_more(scope, error)
            raise
        CLIENT.set(identity.name)
        scope["state"][_IDENTITY] = identity

    @property
    def asks(self) -> bool:
        """Whether callers have to show who they are."""
        return self._access is not None

    def allows(self, scope: Scope, permission: Permission) -> bool:
        """Whether who sent a request may have `permission` as well."""
        if self._access is None:
            return True
        known: Identity | None = scope["state"].get(_IDENTITY)
        if known is None:
            try:
                known = self._access.identify(_shown(scope))
            except AccessError:
                return False
        return permission in known.permissions


def _shown(scope: Scope) -> list[tuple[str, str]]:
    return [(_LOOKED_FOR[name], value.decode("latin-1")) for name, value in scope["headers"] if name in _LOOKED_FOR]


def _may_be_a_picture(scope: Scope) -> bool:
    """Whether a page of another site may have a browser ask this, as the address of a picture on it.

    Browsers send the password that they keep with it, and say where it comes from only over TLS and to this machine.
    """
    if scope["type"] != "http" or scope["method"] not in _GETTING:
        return False
    headers = dict(scope["headers"])
    return shows_password(headers) or says_other_site(headers)


def _tells_methods(handler: BaseRouteHandler) -> bool:
    """Whether a route is the one that Litestar adds to each path, which tells what methods there are, as 405 does."""
    return isinstance(handler, HTTPRouteHandler) and handler.http_methods == {"OPTIONS"}


def _tell_more(scope: Scope, error: AccessError) -> None:
    if error.kind is ErrorKind.UNAUTHENTICATED:
        accepted = dict(scope["headers"]).get(b"accept", b"")
        # Browsers ask their user for a password, which scripts and other clients are not to be led to.
        return_header(scope, CHALLENGE, _BASIC if b"text/html" in accepted else _BEARER)
    if error.retry_after is not None:
        return_header(scope, RETRY_AFTER, str(error.retry_after))
