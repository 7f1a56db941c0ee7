"""Which pages of other origins may read responses (CORS), for inferences and for the routes of the framework."""

from collections.abc import Mapping, Sequence

from litestar.config.cors import CORSConfig

from app.core.protocols.protocol import HttpProtocol
from app.core.protocols.request_info import BASE_ID_HEADER, REQUEST_ID_HEADER, RETRY_AFTER
from app.core.server.auth.credentials import AUTHORIZATION, KEY_HEADER
from app.core.server.http.cross_site import ANY_ORIGIN

_ID_HEADERS = (BASE_ID_HEADER, REQUEST_ID_HEADER)
# The header of the page is missing because other sites must not send it.
_REQUEST_HEADERS = (AUTHORIZATION, KEY_HEADER, "content-type", "traceparent", "tracestate", "x-request-timeout-ms")


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


def cors_headers(config: CORSConfig | None, headers: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Return the headers of a response to a request with `headers`, as the framework adds them on its routes."""
    origin = headers.get("origin")
    if config is None or not origin:
        return ()
    added = {name.lower(): value for name, value in config.simple_headers.items()}
    if config.is_origin_allowed(origin):
        added["access-control-allow-origin"] = origin
        added["vary"] = "Origin"
    added["access-control-allow-headers"] = ", ".join(sorted(set(config.allow_headers)))
    added["access-control-allow-methods"] = ", ".join(sorted(set(config.allow_methods)))
    return tuple(added.items())
