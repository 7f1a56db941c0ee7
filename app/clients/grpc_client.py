"""Send images to a server over gRPC, and read the records of its answers."""

import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import msgspec
from google.protobuf.message import DecodeError

from app.clients.credentials import CredentialsError, TlsOptions
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

_BUSY, _DOWN = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
_REJECTED = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
_METADATA_NAME = re.compile(r"[a-z0-9_.-]+(?<!-bin)", re.IGNORECASE)


@contextmanager
def open_channel(url: str, tls: TlsOptions, max_answer_bytes: int = -1) -> Generator[Any]:
    """Open a channel to grpc://host:port, grpcs://host:port for TLS, or host:port. It connects on first use.

    Raise CredentialsError if a TLS file cannot be used.
    """
    options = [
        ("grpc.max_receive_message_length", max_answer_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_http_proxy", 0),
    ]
    address = url.rpartition("://")[2]
    channel: Any
    with (
        grpc.secure_channel(address, tls.credentials(), options=options)
        if url.startswith("grpcs://")
        else grpc.insecure_channel(address, options=options)
    ) as channel:
        yield channel


def metadata_from(headers: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Return headers as metadata of calls. Raise CredentialsError if one cannot be metadata."""
    if not all(_METADATA_NAME.fullmatch(name) for name in headers):
        raise CredentialsError("--header: gRPC accepts names of a-z, 0-9, _, - and . that do not end in -bin")
    return [(name.lower(), value) for name, value in headers.items()]


def grpc_client(
    channel: Any,
    url: str,
    protocol: ClientProtocol,
    model: str,
    headers: Mapping[str, str],
    timeout: float,
    retries: Retries,
) -> Client:
    """Return a client with one channel. Raise CredentialsError if a header cannot be metadata."""
    metadata = metadata_from(headers)
    retried = (_BUSY, _DOWN) if retries.persistent else (_BUSY,)

    def call(body: bytes) -> bytes:
        for delay in retries.delays:
            try:
                return channel.unary_unary(protocol.path(model))(body, timeout=timeout, metadata=metadata)
            except grpc.RpcError as error:
                call_error: Any = error
                code = call_error.code()
                advice = certificate_advice(call_error.details())
                if code not in retried or delay is None or advice:
                    is_unavailable = code in (_BUSY, _DOWN, *_REJECTED)
                    error_class = ServerUnavailableError if is_unavailable else InferenceClientError
                    raise error_class(f"{code.name}: {call_error.details()}{advice}") from None
                if code == _DOWN:
                    retries.on_wait(f"{url}: {code.name}")
            time.sleep(delay)
        raise AssertionError

    def predict(data: bytes, parameters: Parameters) -> Records:
        request = protocol.request(data, parameters)
        request.model_name = model
        body = call(request.SerializeToString())
        try:
            return msgspec.convert(protocol.records(body), list[dict[str, object]])
        except (DecodeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise InferenceClientError(f"The answer has no records: {error}") from None

    return predict
