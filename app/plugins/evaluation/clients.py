"""Send one image to a server over any HTTP protocol, and parse the records of its answer.

It shares no code with the server, so that it works with any engine.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import httpx
import msgspec

from app.core.plugins import registry
from app.plugins.evaluation.client_protocols import PROTOCOLS as OWN_PROTOCOLS
from app.plugins.evaluation.client_protocols import GrpcClientProtocol, HttpClientProtocol
from app.plugins.evaluation.dataset import Item
from app.plugins.evaluation.runner import InferenceClientError, Records, ServerUnavailableError
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

_PROTOCOLS: Sequence[HttpClientProtocol | GrpcClientProtocol] = (
    *OWN_PROTOCOLS,
    *registry().extensions("evaluation.clients"),
)
HTTP_PROTOCOLS = {protocol.name: protocol for protocol in _PROTOCOLS if isinstance(protocol, HttpClientProtocol)}
GRPC_PROTOCOLS = {protocol.name: protocol for protocol in _PROTOCOLS if isinstance(protocol, GrpcClientProtocol)}
"""The protocols by their names in ``charioteer conform``."""


class HttpInferenceClient:
    """An HTTP client for inferences. It retries a few times if the server is busy.

    Args:
        client: the HTTP client with timeout and headers; several threads use it.
        url: the URL of the server, without the protocol's path.
        protocol: one of `HTTP_PROTOCOLS`.
        model: the name of the model on the server.
        parameters: the parameters of every request; the question of an item is added.
        persistent: whether to retry for minutes, also if the server cannot be reached.
    """

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        protocol: str,
        model: str,
        parameters: Mapping[str, object],
        *,
        persistent: bool = False,
    ) -> None:
        self._client = client
        self._protocol = HTTP_PROTOCOLS[protocol]
        self._url = url.rstrip("/") + self._protocol.path(quote(model, safe=""))
        self._parameters = parameters
        self._delays = PERSISTENT_DELAYS_S if persistent else RETRY_DELAYS_S
        self._persistent = persistent

    def __call__(self, item: Item, data: bytes) -> Records:
        """Return the records for one image.

        Raises:
            InferenceClientError: when the answer has no records; the message quotes it.
        """
        response = self._post(self._protocol.request(data, item.with_question(self._parameters)))
        if response.status_code != 200:
            reason = f"HTTP {response.status_code}: {_reason(response)}"
            if response.status_code in _UNAVAILABLE:
                raise ServerUnavailableError(reason)
            raise InferenceClientError(reason, _KINDS.get(response.status_code, ErrorKind.MODEL_FAILED))
        try:
            records: object = self._protocol.records(msgspec.json.decode(response.content))
            return msgspec.convert(records, list[dict[str, object]])
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            body = truncate(response.text, _MAX_REASON)
            raise InferenceClientError(f"The answer has no records ({type(error).__name__}: {error}): {body}") from None

    def _post(self, request: Mapping[str, Any]) -> httpx.Response:
        for delay in (*self._delays, None):
            try:
                response = self._client.post(self._url, **request)
            except httpx.HTTPError as error:
                shown_url = httpx.URL(self._url).copy_with(userinfo=b"")
                reason = f"{shown_url}: {str(error) or type(error).__name__}"
                if isinstance(error, httpx.TimeoutException):
                    raise InferenceClientError(reason, ErrorKind.DEADLINE_EXCEEDED) from None
                if delay is None or not self._persistent:
                    raise ServerUnavailableError(reason) from None
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
