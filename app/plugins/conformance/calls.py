"""Call an engine over gRPC."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from app.core.proto import message_class
from app.plugins.conformance.exchange import Exchange, InconclusiveError, ViolationError
from app.plugins.conformance.probe import GrpcChannel, Probe


def call(probe: Probe, service: ServiceDescriptor, method: str, request: Any, *, fresh: bool = False) -> Exchange:
    """Call `method` of `service` as a `Probe.exchange`. Reuse the response to an equal earlier call, unless `fresh`."""
    path = f"/{service.full_name}/{method}"
    request_body = request.SerializeToString(deterministic=True)
    transport = cast("GrpcChannel", probe.transport)

    def send() -> Exchange:
        status, text, answers = transport.call(path, request_body)
        answer_class = GetMessageClass(service.methods_by_name[method].output_type)
        try:
            messages = [answer_class.FromString(answer) for answer in answers]
            body = text if status else "\n".join(map(_as_json, messages))
        except DecodeError as error:
            messages, body = [], text or f"The answer is not a {answer_class.DESCRIPTOR.name}: {error}"
        name = next((code.name for code in grpc.StatusCode if cast("Any", code.value)[0] == status), str(status))
        headers = {"grpc-status": name, **({"grpc-message": text} if text else {})}
        return Exchange("gRPC", path, {}, _as_json(request).encode(), status, headers, body.encode(), messages)

    return probe.exchange(("gRPC", path, request_body), send, fresh=fresh)


def call_method(probe: Probe, service: ServiceDescriptor, method: str, **fields: Any) -> Exchange:
    """Call `method` of `service` with a request of `fields`."""
    return call(probe, service, method, GetMessageClass(service.methods_by_name[method].input_type)(**fields))


def parse_request(content: Mapping[str, Any], name: str) -> Any:
    """Return the message `name` from protobuf's JSON.

    Raise InconclusiveError if the content, which is from the user, is not this message.
    """
    try:
        return ParseDict(dict(content), message_class(name)())
    except ParseError as error:
        kind = name.rpartition(".")[2]
        raise InconclusiveError(f"--request is not a {kind} in protobuf's JSON: {error}") from None


def expect_reasons(exchanges: Iterable[Exchange]) -> None:
    """Raise a `ViolationError` if a rejected call has no text with its status.

    Raise InconclusiveError if no call was rejected.
    """
    rejected = [exchange for exchange in exchanges if not exchange.ok]
    if not rejected:
        raise InconclusiveError("Nothing was rejected")
    for exchange in rejected:
        if not exchange.headers.get("grpc-message"):
            raise ViolationError(f"{exchange.path}: Expected a text with {exchange.code}, got none")


def _as_json(message: Any) -> str:
    try:
        pool = message.DESCRIPTOR.file.pool
        return MessageToJson(message, preserving_proto_field_name=True, indent=None, descriptor_pool=pool)
    except (TypeError, ValueError, UnicodeError) as error:
        return f"{message.DESCRIPTOR.name}, which cannot be shown: {error}"
