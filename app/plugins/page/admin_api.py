"""Load and unload models from the page, with authorization.

`AdminApi.rejection_reason` alone decides who may change models. A page of another site must not do so through a browser
on this machine. Such a page can send simple requests to any address, and can give its own name any address (DNS
rebinding). It can neither send a header of its own choice to another origin, nor choose `Host`.
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler

from app.core.engine.models.registry import Registration
from app.core.engine.models.repository import Repository
from app.core.protocols.protocol import HttpRequest, json_response
from app.core.server.auth.bind_policy import hostname_of, is_loopback_host
from app.core.server.auth.http_access import HttpAccess, requires
from tasks.inference.error import ErrorKind, InferenceError

REPOSITORY_PATH = "/page/repository"

PAGE_HEADER = "charioteer-page"
"""Header with the origin under which the page was opened. Browsers ask with a preflight before they send it to another
origin, and the server allows no such preflight."""


class AdminApi:
    """Serve the model view of the page.

    With `admin`, every user of the page may change models, with None only users at a loopback address. `access` must
    also allow the change.
    """

    def __init__(self, repository: Repository, admin: bool | None = None, access: HttpAccess | None = None) -> None:
        self._repository = repository
        self._admin = admin
        self._access = access or HttpAccess(None)

    def rejection_reason(self, headers: Mapping[str, str]) -> str:
        """Return why a request with these headers, by lower-case name, may not change models; empty if it may."""
        if self._admin is False:
            return "Loading and unloading from the page is switched off here"
        page_origin = headers.get(PAGE_HEADER, "")
        if not page_origin or not _is_same_origin(headers):
            return "Only the page itself may load and unload models here"
        names = (hostname_of(headers.get("host", "")), hostname_of(page_origin.partition("://")[2]))
        if self._admin is None and not all(is_loopback_host(name) for name in names):
            return "Only a browser on the server's own machine may load and unload models; --page-admin allows others"
        return ""

    @property
    def handlers(self) -> list[HTTPRouteHandler]:
        """Return the handlers that show the state of every version, and load and unload models."""
        repository = self._repository

        @get(REPOSITORY_PATH, opt=requires("read"))
        async def show_versions(request: HttpRequest) -> Response[bytes]:
            versions = [_version(registration) for registration in await repository.index()]
            admin = not self.rejection_reason(request.headers) and self._access.allows(request.scope, "admin")
            return json_response(msgspec.json.encode({"admin": admin, "versions": versions}))

        @post(f"{REPOSITORY_PATH}/{{name:str}}/load", status_code=200, opt=requires("admin"))
        async def load(request: HttpRequest) -> Response[bytes]:
            return await self._change(request, repository.load)

        @post(f"{REPOSITORY_PATH}/{{name:str}}/unload", status_code=200, opt=requires("admin"))
        async def unload(request: HttpRequest) -> Response[bytes]:
            return await self._change(request, repository.unload)

        return [show_versions, load, unload]

    async def _change(self, request: HttpRequest, change: Callable[[str], Awaitable[None]]) -> Response[bytes]:
        if reason := self.rejection_reason(request.headers):
            raise InferenceError(ErrorKind.PERMISSION_DENIED, reason)
        await change(request.path_params["name"])
        return json_response(b"{}")


def _is_same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether the request comes from a page of this origin, or has no browser headers."""
    if site := headers.get("sec-fetch-site"):
        return site == "same-origin"
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host", "")


def _version(registration: Registration) -> dict[str, object]:
    """Return one version of a model, loaded or only on disk.

    `enabled` is False if it was unloaded on purpose, or never loaded.
    """
    own = {name: getattr(registration, name) for name in ("state", "reason", "enabled")}
    return {"name": registration.source.name, "version": registration.source.version, **own}
