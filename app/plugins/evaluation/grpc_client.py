"""Send images to a server over gRPC."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import msgspec
from google.protobuf.message import DecodeError

from app.core.proto import message_class
from app.plugins.evaluation.clients import GRPC_PROTOCOLS, PERSISTENT_DELAYS_S, RETRY_DELAYS_S, report_wait
from app.plugins.evaluation.dataset import Item
from app.plugins.evaluation.runner import InferenceClient, InferenceClientError, Records, ServerUnavailableError

_BUSY, _DOWN = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
_REFUSED = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@contextmanager
def open_grpc_client(
    address: str,
    protocol: str,
    model: str,
    parameters: Mapping[str, object],
    timeout: float,
    headers: Mapping[str, str],
    credentials: grpc.ChannelCredentials | None = None,
    *,
    persistent: bool = False,
) -> Generator[InferenceClient]:
    """Yield a client with one channel, as `http_inference_client`. Without credentials, there is no TLS."""
    delays = PERSISTENT_DELAYS_S if persistent else RETRY_DELAYS_S
    retried = (_BUSY, _DOWN) if persistent else (_BUSY,)
    metadata = [(name.lower(), value) for name, value in headers.items()]
    infer = GRPC_PROTOCOLS[protocol].infer

    def call(method: str, request: Any, response_name: str) -> Any:
        body, response = request.SerializeToString(), message_class(response_name)
        for delay in (*delays, None):
            try:
                return response.FromString(channel.unary_unary(method)(body, timeout=timeout, metadata=metadata))
            except grpc.RpcError as error:
                call_error: Any = error
                code = call_error.code()
                if code not in retried or delay is None:
                    is_unavailable = code in (_BUSY, _DOWN, *_REFUSED)
                    error_type = ServerUnavailableError if is_unavailable else InferenceClientError
                    raise error_type(f"{code.name}: {call_error.details()}") from None
                if code == _DOWN:
                    report_wait(f"{address}: {code.name}")
            time.sleep(delay)
        raise AssertionError

    def predict(item: Item, data: bytes) -> Records:
        try:
            return msgspec.convert(infer(call, model, data, item.with_question(parameters)), list[dict[str, object]])
        except (DecodeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise InferenceClientError(f"The answer has no records: {error}") from None

    channel: Any
    with (
        grpc.insecure_channel(address, options=_UNLIMITED)
        if credentials is None
        else grpc.secure_channel(address, credentials, options=_UNLIMITED)
    ) as channel:
        yield predict
