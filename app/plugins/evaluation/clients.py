"""Send one image to a server over any HTTP protocol, and parse the records of its answer.

It shares no code with the server, so that it works with any engine.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import httpx
import msgspec

from app.core.cli.terminal import error_console, printable
from app.core.plugins import registry
from app.plugins.evaluation.client_protocols import PROTOCOLS as OWN_PROTOCOLS
from app.plugins.evaluation.client_protocols import GrpcClientProtocol, HttpClientProtocol
from app.plugins.evaluation.dataset import Item
from app.plugins.evaluation.runner import InferenceClient, InferenceClientError, Records, ServerUnavailableError
from tasks.inference.error import ErrorKind, truncate

RETRY_DELAYS_S = (0.2, 0.4, 0.8, 1.6)
"""Delays in seconds before retries to a busy server."""
PERSISTENT_DELAYS_S = (*RETRY_DELAYS_S, 3.0, *([5.0] * 58))
"""Delays of a persistent client, in all five minutes, in which a server can restart."""
_BUSY = frozenset({429, 503})
_UNAVAILABLE = _BUSY | {401, 403, 404}
_KINDS = {400: ErrorKind.INVALID_REQUEST, 413: ErrorKind.TOO_LARGE, 504: ErrorKind.DEADLINE_EXCEEDED}
_MAX_RETRY_AFTER_S = 60.0
_MAX_REASON = 300
_reported: dict[str, object] = {}

_PROTOCOLS: Sequence[HttpClientProtocol | GrpcClientProtocol] = (
    *OWN_PROTOCOLS,
    *registry().extensions("evaluation.clients"),
)
HTTP_PROTOCOLS = {protocol.name: protocol for protocol in _PROTOCOLS if isinstance(protocol, HttpClientProtocol)}
GRPC_PROTOCOLS = {protocol.name: protocol for protocol in _PROTOCOLS if isinstance(protocol, GrpcClientProtocol)}
"""The protocols by their names in ``charioteer conform``."""


def http_inference_client(
    client: httpx.Client,
    url: str,
    protocol: str,
    model: str,
    parameters: Mapping[str, object],
    *,
    persistent: bool = False,
) -> InferenceClient:
    """Return a client that sends images to `url`, which has no path of `protocol`, one of `HTTP_PROTOCOLS`.

    The question of an item is added to the parameters. It retries a few times if the server is busy. A persistent
    client retries for minutes, also if the server cannot be reached.
    """
    spoken = HTTP_PROTOCOLS[protocol]
    url = url.rstrip("/") + spoken.path(quote(model, safe=""))

    def predict(item: Item, data: bytes) -> Records:
        response = _post(client, url, spoken.request(data, item.with_question(parameters)), persistent=persistent)
        if response.status_code != 200:
            reason = f"HTTP {response.status_code}: {_reason(response)}"
            if response.status_code in _UNAVAILABLE:
                raise ServerUnavailableError(reason)
            raise InferenceClientError(reason, _KINDS.get(response.status_code, ErrorKind.MODEL_FAILED))
        try:
            return msgspec.convert(spoken.records(msgspec.json.decode(response.content)), list[dict[str, object]])
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            body = truncate(response.text, _MAX_REASON)
            raise InferenceClientError(f"The answer has no records ({type(error).__name__}: {error}): {body}") from None

    return predict


def report_wait(reason: str) -> None:
    """Report, once for each reason, that a persistent client waits for a server that it cannot reach."""
    # Several threads wait at once; only the first one finds its own object.
    if _reported.setdefault(reason, own := object()) is own:
        error_console().print(f"Waiting for the server, at most five minutes: {printable(reason)}")


def _post(client: httpx.Client, url: str, request: Mapping[str, Any], *, persistent: bool) -> httpx.Response:
    for delay in (*(PERSISTENT_DELAYS_S if persistent else RETRY_DELAYS_S), None):
        try:
            response = client.post(url, **request)
        except httpx.HTTPError as error:
            reason = f"{httpx.URL(url).copy_with(userinfo=b'')}: {str(error) or type(error).__name__}"
            if isinstance(error, httpx.TimeoutException):
                raise InferenceClientError(reason, ErrorKind.DEADLINE_EXCEEDED) from None
            # A run that has ended closes the client under requests in flight.
            if delay is None or not persistent or client.is_closed:
                raise ServerUnavailableError(reason) from None
            report_wait(reason)
        else:
            if response.status_code not in _BUSY or delay is None:
                return response
            delay = max(delay, _retry_after(response))
        time.sleep(delay)
    raise AssertionError


def _retry_after(response: httpx.Response) -> float:
    """Return the seconds of Retry-After, at most a minute; 0 without it. Inference servers send no dates."""
    value = response.headers.get("Retry-After", "")
    return min(float(value), _MAX_RETRY_AFTER_S) if value.isascii() and value.isdigit() else 0.0


def _reason(response: httpx.Response) -> str:
    """Return the error message of a response in any protocol."""
    try:
        body = msgspec.json.decode(response.content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return truncate(response.text, _MAX_REASON)
    status: object = body.get("status")
    inner = cast("Mapping[str, object]", status).get("msg") if isinstance(status, Mapping) else None
    message = next((body[name] for name in ("error", "detail", "message") if name in body), inner)
    return truncate(str(message or response.text), _MAX_REASON)
