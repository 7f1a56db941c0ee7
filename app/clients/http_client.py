"""Send images to a server over HTTP, and read the records of its answers."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from app.clients.credentials import TlsOptions
from app.clients.protocol import (
    Client,
    ClientProtocol,
    InferenceClientError,
    Parameters,
    Records,
    Retries,
    ServerUnavailableError,
    certificate_advice,
)

_BUSY = frozenset({429, 503})
_UNAVAILABLE = _BUSY | {401, 403, 404}
_DEADLINE_EXCEEDED = 504
_MAX_RETRY_AFTER_S = 60.0
_MAX_REASON = 300


def open_http(headers: Mapping[str, str], timeout: float, tls: TlsOptions) -> httpx.Client:
    """Return a client that sends `headers`, and ignores proxies of the environment.

    Raise CredentialsError if a TLS file cannot be used.
    """
    return httpx.Client(timeout=timeout, headers=headers, trust_env=False, verify=tls.context())


def http_client(http: httpx.Client, url: str, protocol: ClientProtocol, model: str, retries: Retries) -> Client:
    """Return a client that sends images to `url`, which has no path of the protocol."""
    url = url.rstrip("/") + protocol.path(quote(model, safe=""))

    def predict(data: bytes, parameters: Parameters) -> Records:
        response = _post(http, url, protocol.request(data, parameters), retries)
        if response.status_code != 200:
            error_class = ServerUnavailableError if response.status_code in _UNAVAILABLE else InferenceClientError
            raise error_class(f"HTTP {response.status_code}: {_reason(response)}", response.status_code)
        try:
            records = protocol.records(msgspec.json.decode(response.content))
            return msgspec.convert(records, list[dict[str, object]])
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            body = _truncate(response.text)
            raise InferenceClientError(f"The answer has no records ({type(error).__name__}: {error}): {body}") from None

    return predict


def _post(http: httpx.Client, url: str, body: Mapping[str, Any], retries: Retries) -> httpx.Response:
    for delay in retries.delays:
        try:
            response = http.post(url, json=body)
        except httpx.HTTPError as error:
            reason = f"{httpx.URL(url).copy_with(userinfo=b'')}: {str(error) or type(error).__name__}"
            if isinstance(error, httpx.TimeoutException):
                raise InferenceClientError(reason, _DEADLINE_EXCEEDED) from None
            if advice := certificate_advice(reason):
                raise ServerUnavailableError(reason + advice) from None
            # A run that has ended closes the client under requests in flight.
            if delay is None or not retries.persistent or http.is_closed:
                raise ServerUnavailableError(reason) from None
            retries.on_wait(reason)
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
        return _truncate(response.text)
    message = next((body[name] for name in ("error", "detail", "message") if name in body), None)
    return _truncate(str(message or response.text))


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}..."
