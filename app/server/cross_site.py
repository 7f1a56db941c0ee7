"""Requests that another site's page has a browser send."""

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

__all__ = ("without_cross_site",)

_FOREIGN = frozenset({b"cross-site", b"same-site"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_MESSAGE = "A page of another site sent this. Open the page of this server, or ask without a browser"


def without_cross_site(app: ASGIApp) -> ASGIApp:
    """An application that refuses what pages of other origins have browsers post, with 403.

    Browsers send simple requests for any page, and only keep the answer from it: whoever opens a hostile page would
    have models unloaded on a server that only they can reach. Browsers tell where a request comes from in
    `Sec-Fetch-Site` (W3C, Fetch Metadata Request Headers), which no page can set; other clients do not send it.
    """
    body = msgspec.json.encode({"error": _MESSAGE})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _SAFE and _is_foreign(scope):
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": body, "more_body": False})
            return
        await app(scope, receive, send)

    return guarded


def _is_foreign(scope: Scope) -> bool:
    return any(name == b"sec-fetch-site" and value.strip().lower() in _FOREIGN for name, value in scope["headers"])
