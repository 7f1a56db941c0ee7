"""TensorFlow Serving's gRPC services: `tensorflow.serving.PredictionService` and `tensorflow.serving.ModelService`."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.grpc_protocol import GrpcProtocol, Handler, unary_handler
from app.core.protocols.protocol import Permission, report_rejections
from app.core.protocols.status import grpc_status
from app.core.wire.protobuf_limits import parse_message
from app.plugins.tensorflow_serving.grpc.codec import (
    MULTI_INFERENCE,
    ExamplesCodec,
    PredictMessageCodec,
    model_spec,
    read_tasks,
    target_of,
)
from app.plugins.tensorflow_serving.proto import MODEL_SERVICE, PREDICTION_SERVICE, message_class
from app.plugins.tensorflow_serving.signatures import Method, UnknownSignatureError, signature_definitions
from app.plugins.tensorflow_serving.targets import find_ready_version, find_versions, model_status
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value

_NAME = "tensorflow-serving-grpc"
_PACKAGE = "tensorflow.serving"
_SIGNATURE_DEF = "signature_def"
_METHODS = {"Classification": Method.CLASSIFY, "Regression": Method.REGRESS}


class TensorFlowPredictionService(GrpcProtocol):
    """Inference and metadata."""

    name = _NAME
    service = PREDICTION_SERVICE
    permissions: Mapping[str, Permission] = dict.fromkeys(PREDICTION_SERVICE.methods_by_name, "infer")
    queued_methods = frozenset({"Predict", "Classify", "Regress", MULTI_INFERENCE})

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        del stopping

        def infer(operation: str) -> Handler:
            async def method(data: bytes, context: RequestContext) -> bytes:
                with report_rejections(engine, context):
                    # Parse in the event loop: parsing holds the GIL in any thread, and the model names the queue.
                    codec = _codec(engine, operation, _parse(f"{operation}Request", data, engine))
                try:
                    return await engine.handle(context, codec.target.model, codec.decode, codec.encode)
                except InferenceError as error:
                    raise codec.map_error_path(error) from None

            return unary_handler(self.name, method, _status_of)

        return {
            "Predict": infer("Predict"),
            "Classify": infer("Classification"),
            "Regress": infer("Regression"),
            MULTI_INFERENCE: infer(MULTI_INFERENCE),
            "GetModelMetadata": unary_handler(self.name, partial(_model_metadata, engine), _status_of),
        }


class TensorFlowModelService(GrpcProtocol):
    """The state of models. The real server's method that replaces the models is rejected."""

    name = _NAME
    service = MODEL_SERVICE
    permissions: Mapping[str, Permission] = {"GetModelStatus": "infer", "HandleReloadConfigRequest": "admin"}

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        del stopping

        async def get_model_status(data: bytes, _: RequestContext) -> bytes:
            request = _parse("GetModelStatusRequest", data, engine)
            versions = find_versions(engine.registry, target_of(request))
            content = model_status(versions, engine.server_not_ready_reason)
            for status in content["model_version_status"]:
                # A version that is no int64 number has no field in the message.
                status["version"] = model_spec("", status["version"]).version.value
            return ParseDict(content, message_class(f"{_PACKAGE}.GetModelStatusResponse")()).SerializeToString()

        async def reject_reload(_: bytes, __: RequestContext) -> bytes:
            message = "Models are configured where the server starts; the repository API of KServe V2 reloads them"
            raise InferenceError(ErrorKind.UNSUPPORTED, message)

        return {
            "GetModelStatus": unary_handler(self.name, get_model_status),
            "HandleReloadConfigRequest": unary_handler(self.name, reject_reload),
        }


def _codec(engine: Engine, operation: str, message: Any) -> PredictMessageCodec | ExamplesCodec:
    create = partial(ExamplesCodec, engine=engine, operation=operation)
    if operation == "Predict":
        target = target_of(message)
        return PredictMessageCodec(engine=engine, target=target, message=message)
    if operation == MULTI_INFERENCE:
        tasks = read_tasks(message.tasks)
        return create(target=target_of(message.tasks[0]), examples=message.input, tasks=tasks)
    tasks = [(message.model_spec.signature_name, _METHODS[operation])]
    return create(target=target_of(message), examples=message.input, tasks=tasks)


async def _model_metadata(engine: Engine, data: bytes, _: RequestContext) -> bytes:
    request = _parse("GetModelMetadataRequest", data, engine)
    target = target_of(request)
    if not request.metadata_field:
        raise invalid(f"Expected {_SIGNATURE_DEF!r}, got none", "metadata_field")
    for field in request.metadata_field:
        if field != _SIGNATURE_DEF:
            raise invalid(f"Expected {_SIGNATURE_DEF!r}, got {quote_value(field)}", "metadata_field")
    registration = find_ready_version(engine.registry, target)
    definitions = message_class(f"{_PACKAGE}.SignatureDefMap")()
    ParseDict({_SIGNATURE_DEF: signature_definitions(registration.ready_servable())}, definitions)
    source = registration.source
    response = message_class(f"{_PACKAGE}.GetModelMetadataResponse")(model_spec=model_spec(source.name, source.version))
    response.metadata[_SIGNATURE_DEF].Pack(definitions)
    return response.SerializeToString()


def _status_of(error: InferenceError) -> grpc.StatusCode:
    return grpc.StatusCode.FAILED_PRECONDITION if isinstance(error, UnknownSignatureError) else grpc_status(error.kind)


def _parse(name: str, data: bytes, engine: Engine) -> Any:
    return parse_message(message_class(f"{_PACKAGE}.{name}"), data, engine.limits)
