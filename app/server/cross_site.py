"""Requests that another site's page has a browser send."""

from collections.abc import Collection, Mapping

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

from app.server.loopback import hostname_of, names_loopback
from app.settings.server import ServerSettings

__all__ = ("only_for_this_machine", "says_other_site", "shows_password", "without_cross_site")

_FOREIGN = frozenset({b"cross-site", b"same-site"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_SIMPLE = frozenset({b"", b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain"})
_PRIVATE = ("/inferences", "/page/")
_MESSAGE = "A page of another site sent this. Open the page of this server, or ask without a browser"
_REBOUND = (
    "This server answers browsers under the names of its own machine, such as 127.0.0.1; --page opens it to those who "
    "come by another name"
)

Headers = Mapping[bytes, bytes]


def without_cross_site(app: ASGIApp, *, local: bool = False, origins: Collection[str] = ()) -> ASGIApp:
    """An application that refuses what pages of other origins have browsers ask, with 403.

    Browsers send simple requests for any page, and only keep the answer from it: whoever opens a hostile page would
    have models unloaded on a server that only they can reach. Browsers tell where a request comes from in
    `Sec-Fetch-Site` (W3C, Fetch Metadata Request Headers), and to addresses without TLS, this machine's aside, at least
    in `Origin`; no page can set either, and other clients send neither. What is no simple request has been allowed
    by whoever stands before the server, or comes from one of `origins`: nothing here answers a preflight of others.

    A page may also give its own name the address of this machine (DNS rebinding). Then all of it is one origin, and the
    name in `Host` is what tells; over plain HTTP browsers send no `Sec-Fetch-Site` for such a name.

    Args:
        app: what is asked otherwise.
        local: whether browsers have no reason to come by a name that is not this machine's.
        origins: whose pages may ask all the same, as browsers write them, though not with somebody's password.
    """
    welcome = {each.encode() for each in origins}
    refused = (_answer(_MESSAGE), _answer(_REBOUND))

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (local or scope["method"] not in _SAFE):
            headers = dict(scope["headers"])
            listed = headers.get(b"origin") in welcome and not shows_password(headers)
            cross_site = scope["method"] not in _SAFE and not listed and _is_foreign(headers)
            if cross_site or (local and _is_rebound(scope["path"], headers)):
                start, body = refused[0 if cross_site else 1]
                await send(start)
                await send(body)
                return
        await app(scope, receive, send)

    return guarded


def only_for_this_machine(settings: ServerSettings) -> bool:
    """Whether a server listens on a loopback address, and was not told to show anything to others all the same.

    A proxy on the same machine may come by any name; who has one says so.
    """
    opened = settings.page or settings.page_admin or settings.serve_inferences
    return names_loopback(settings.host) and not opened


def says_other_site(headers: Headers) -> bool:
    """Whether a browser says that a page of another site had it send this."""
    return _site(headers) in _FOREIGN


def shows_password(headers: Headers) -> bool:
    """Whether it comes with a password, which browsers keep and send along: a page that may ask shows a key itself."""
    return headers.get(b"authorization", b"").strip()[:5].lower() == b"basic"


def _site(headers: Headers) -> bytes:
    return headers.get(b"sec-fetch-site", b"").strip().lower()


def _is_foreign(headers: Headers) -> bool:
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() not in _SIMPLE:
        return False
    if _site(headers):
        return says_other_site(headers)
    origin = headers.get(b"origin")
    if origin is None:
        return False
    # A proxy may have put its own name into Host. In a simple request, no page can set the other header.
    names = (headers.get(b"host", b""), headers.get(b"x-forwarded-host", b"").partition(b",")[0])
    return _bare(origin.partition(b"://")[2]) not in {_bare(each) for each in names if each}


def _is_rebound(path: str, headers: Headers) -> bool:
    if b"sec-fetch-site" in headers or names_loopback(_host_named(headers)):
        return False
    # The routes take several slashes for one.
    path = f"/{path.lstrip('/')}"
    return b"origin" in headers or path.startswith(_PRIVATE) or (path == "/" and _wants_page(headers))


def _host_named(headers: Headers) -> str:
    return hostname_of(f"//{headers.get(b'host', b'').decode('latin-1')}")


def _wants_page(headers: Headers) -> bool:
    return b"text/html" in headers.get(b"accept", b"")


def _bare(netloc: bytes) -> bytes:
    """A host with its port, where that is not the usual one."""
    return netloc.strip().lower().removesuffix(b":80").removesuffix(b":443")


def _answer(message: str) -> tuple[dict[str, object], dict[str, object]]:
    body = msgspec.json.encode({"error": message})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return (
        {"type": "http.response.start", "status": 403, "headers": headers},
        {"type": "http.response.body", "body": body, "more_body": False},
    )
