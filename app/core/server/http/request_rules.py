"""Which requests reach the routes, and which pages of other origins may read the responses (CORS).

Rejected are requests that a proxy before the server could read in another way, requests that pages of other sites send
through a browser, and requests for foreign hosts.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial

import msgspec
from litestar.config.cors import CORSConfig
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from app.core.engine.engine import Engine
from app.core.protocols.protocol import HttpProtocol
from app.core.protocols.request_info import BASE_ID_HEADER, REQUEST_ID_HEADER, RETRY_AFTER
from app.core.server.auth.bind_policy import hostname_of, is_loopback_host
from app.core.server.auth.credentials import AUTHORIZATION, KEY_HEADER
from app.core.settings.server import ServerSettings, SettingsError

_CROSS_SITE_VALUES = frozenset({b"cross-site", b"same-site"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SIMPLE_MEDIA_TYPES = frozenset({b"", b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain"})
_CROSS_SITE_MESSAGE = "A page of another site sent this. Open the page of this server, or ask without a browser"
_FOREIGN_HOST_MESSAGE = (
    "The Host header is not a name of this server: on a loopback address that is 127.0.0.1, localhost or [::1]. "
    "--allowed-hosts adds others"
)

_ID_HEADERS = (BASE_ID_HEADER, REQUEST_ID_HEADER)
# The header of the page is missing because other sites must not send it.
_REQUEST_HEADERS = (AUTHORIZATION, KEY_HEADER, "content-type", "traceparent", "tracestate", "x-request-timeout-ms")

ANY_ORIGIN = "*"

Headers = Mapping[bytes, bytes]

RejectionBody = Callable[[HTTPScope, str], bytes]
"""Builds the body of an error response from a request and a message."""


def guard_requests(
    app: ASGIApp,
    *,
    state_changing_paths: Collection[str] = (),
    hosts: Collection[str] | None = None,
    origins: Collection[str] = (),
    rejection_body: RejectionBody = lambda _, message: msgspec.json.encode({"error": message}),
) -> ASGIApp:
    """Return an application that rejects unclear requests (RFC 9112), and requests of pages of other origins with 403.

    Browsers send simple requests for any page and only hide the response from it: a hostile page could unload models on
    a server that only its reader can reach. Browsers report the source of a request in `Sec-Fetch-Site` (W3C, Fetch
    Metadata Request Headers). To addresses without TLS, except loopback, they send at least `Origin`. Pages cannot set
    either header, and other clients send neither. A request that is not simple was allowed by a gateway, or comes from
    one of `origins`: the server allows no other preflights.

    A page can also give its own name a loopback address (DNS rebinding). Then everything is one origin, and only `Host`
    shows the difference. Therefore every route rejects a host that is not in `hosts`.

    Args:
        app: handles all other requests.
        state_changing_paths: paths that change the server's state with any method (`find_state_changing_paths`).
        hosts: names that `Host` may have besides the loopback names; None for any name (`allowed_hosts`).
        origins: origins whose pages may send requests, as browsers write them, or ``*`` for any; never with a stored
            password.
        rejection_body: builds the body of 403 for a request.
    """
    listed_origins, any_origin = {origin.encode() for origin in origins}, ANY_ORIGIN in origins
    # Parsing a host takes as long as the rest of these rules.
    is_allowed = lru_cache(maxsize=64)(partial(is_allowed_host, hosts=hosts))

    async def guarded_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers, message = dict(scope["headers"]), None
            host_count = [name for name, _ in scope["headers"]].count(b"host")
            if host_count != 1 or b"transfer-encoding" in headers:
                response = _framing_error(scope, host_count)
                if response is not None:
                    await response(scope, receive, send)
                    return
            if not is_allowed(headers.get(b"host")):
                message = _FOREIGN_HOST_MESSAGE
            elif _is_cross_site(scope, headers, state_changing_paths):
                is_listed_origin = any_origin or headers.get(b"origin") in listed_origins
                if not is_listed_origin or has_basic_credentials(headers):
                    message = _CROSS_SITE_MESSAGE
            if message is not None:
                response = ASGIResponse(body=rejection_body(scope, message), status_code=403)
                await response(scope, receive, send)
                return
        await app(scope, receive, send)

    return guarded_app


def _framing_error(scope: HTTPScope, hosts: int) -> ASGIResponse | None:
    """Return the response, after which the connection closes, to a request that has no one meaning; None if it has."""
    encodings = [value for name, value in scope["headers"] if name == b"transfer-encoding"]
    status = 400
    if hosts != 1 and (hosts or scope["http_version"] == "1.1"):
        message = f"Expected one Host header, got {hosts}"
    elif encodings and scope["http_version"] == "1.0":
        message = "HTTP/1.0 has no Transfer-Encoding"
    elif encodings and b",".join(encodings).strip().lower() != b"chunked":
        status, message = 501, "Expected chunked as Transfer-Encoding, got something else"
    else:
        return None
    body = msgspec.json.encode({"error": message})
    return ASGIResponse(body=body, status_code=status, headers={"connection": "close"})


def find_state_changing_paths(protocols: Sequence[HttpProtocol], engine: Engine) -> Collection[str]:
    """Return the paths that change the server's state with any method, as their protocol defines."""
    endpoints = (endpoint for protocol in protocols for endpoint in protocol.endpoints(engine))
    return frozenset(endpoint.path for endpoint in endpoints if endpoint.changes_state)


def allowed_hosts(settings: ServerSettings) -> Collection[str] | None:
    """Return the names that `Host` may have besides the loopback names; None for any.

    Without `--allowed-hosts`, a server on a loopback address accepts loopback names only. Elsewhere it accepts any
    name: it cannot know its names in the network. Raise SettingsError for an entry that no `Host` can match.
    """
    host_names = {name.strip() for name in settings.allowed_hosts.split(",") if name.strip()}
    for name in host_names - {"*"}:
        if not hostname_of(name) or {"/", "*", " "} & {*name}:
            raise SettingsError(f"--allowed-hosts: expected names such as app.example or [fd00::1], got {name!r}")
    hosts = {hostname_of(name) for name in host_names}
    if "*" in host_names or (not hosts and not is_loopback_host(settings.host)):
        return None
    return hosts


def parse_origins(option: str, text: str, alternative: str = "") -> list[str]:
    """Return the origins in the value of an option, separated by commas.

    Raise SettingsError if one is invalid, as ``*`` is; `alternative` ends what was expected.
    """
    origins = [origin.strip() for origin in text.split(",") if origin.strip()]
    for origin in origins:
        scheme, _, authority = origin.partition("://")
        if scheme not in ("http", "https") or not authority or "/" in authority or origin != origin.lower():
            raise SettingsError(f"{option}: expected origins such as https://app.example{alternative}, got {origin!r}")
    return origins


def is_allowed_host(host: bytes | None, hosts: Collection[str] | None) -> bool:
    """Return whether a value of `Host` is a loopback name, or in `hosts`, which is None for any; HTTP/1.0 has none."""
    if host is None or hosts is None:
        return True
    name = hostname_of(host.decode("latin-1"))
    return is_loopback_host(name) or name in hosts


def is_reported_cross_site(headers: Headers) -> bool:
    """Return whether the browser reports that a page of another site caused the request."""
    return _fetch_site(headers) in _CROSS_SITE_VALUES


def has_basic_credentials(headers: Headers) -> bool:
    """Return whether the request has a Basic password, which browsers store and add; allowed pages send keys."""
    return headers.get(b"authorization", b"").strip()[:5].lower() == b"basic"


def _fetch_site(headers: Headers) -> bytes:
    return headers.get(b"sec-fetch-site", b"").strip().lower()


def _is_cross_site(scope: HTTPScope, headers: Headers, state_changing_paths: Collection[str]) -> bool:
    # The router treats several slashes as one.
    if "/" + "/".join(filter(None, scope["path"].split("/"))) in state_changing_paths:
        sources = [headers[name] for name in (b"origin", b"referer") if name in headers]
        return is_reported_cross_site(headers) or not all(_is_own_url(headers, url) for url in sources)
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if scope["method"] in _SAFE_METHODS or media_type not in _SIMPLE_MEDIA_TYPES:
        return False
    if _fetch_site(headers):
        return is_reported_cross_site(headers)
    origin = headers.get(b"origin")
    return origin is not None and not _is_own_url(headers, origin)


def _is_own_url(headers: Headers, url: bytes) -> bool:
    """Return whether a URL names the host of the request."""
    # A proxy may put its own name into Host. Pages cannot set X-Forwarded-Host in a simple request.
    names = (headers.get(b"host", b""), headers.get(b"x-forwarded-host", b"").partition(b",")[0])
    return _without_default_port(url.partition(b"://")[2].partition(b"/")[0]) in {
        _without_default_port(name) for name in names if name
    }


def _without_default_port(netloc: bytes) -> bytes:
    """Return a host with its port, unless that is a default port."""
    return netloc.strip().lower().removesuffix(b":80").removesuffix(b":443")


def cors_config(origins: Sequence[str], protocols: Sequence[HttpProtocol]) -> CORSConfig | None:
    """Return the rules for the pages of `origins`; None without any, and with ``*``, as a protocol then answers."""
    if not origins or ANY_ORIGIN in origins:
        return None
    request_headers = {name for protocol in protocols for name in protocol.request_headers}
    response_headers = {name for protocol in protocols for name in protocol.response_headers}
    return CORSConfig(
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=sorted({*_ID_HEADERS, *_REQUEST_HEADERS, *request_headers}),
        expose_headers=sorted({*_ID_HEADERS, RETRY_AFTER, *response_headers}),
    )


def cors_headers(config: CORSConfig, origin: str) -> Sequence[tuple[str, str]]:
    """Return the headers of a response to a page of `origin`, as the framework adds them on its routes."""
    added = {name.lower(): value for name, value in config.simple_headers.items()}
    if config.is_origin_allowed(origin):
        added["access-control-allow-origin"] = origin
        added["vary"] = "Origin"
    added["access-control-allow-headers"] = ", ".join(sorted(set(config.allow_headers)))
    added["access-control-allow-methods"] = ", ".join(sorted(set(config.allow_methods)))
    return tuple(added.items())
