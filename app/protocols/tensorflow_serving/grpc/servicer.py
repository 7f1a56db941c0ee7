"""TensorFlow Serving's gRPC services: `tensorflow.serving.PredictionService` and `tensorflow.serving.ModelService`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError

from app.engine.engine import Engine
from app.engine.request_context import RequestContext
from app.proto import MODEL_SERVICE, PREDICTION_SERVICE, message_class
from app.protocols.grpc_protocol import Handler, unary_handler
from app.protocols.permission import Permission
from app.protocols.tensorflow_serving.grpc.codec import (
    ExamplesCodec,
    PredictCodec,
    encode_multi_inference,
    model_spec,
    read_tasks,
    target_of,
)
from app.protocols.tensorflow_serving.lookup import LoadingStatus, find_ready_version, find_versions, loading_error
from app.protocols.tensorflow_serving.metrics import TENSORFLOW_SERVING_GRPC, grpc_code
from app.protocols.tensorflow_serving.signatures import Method, signature_definitions
from app.protocols.tensorflow_serving.status import model_status
from app.wire.protobuf_limits import check_message
from tasks.inference.error import ErrorKind, InferenceError, invalid

__all__ = ("TensorFlowModelService", "TensorFlowPredictionService")

_PACKAGE = "tensorflow.serving"
_SIGNATURE_DEF = "signature_def"
InferCodec = PredictCodec | ExamplesCodec


class TensorFlowPredictionService:
    """Inference and metadata.

    Args:
        loading_status: as `TensorFlowServing`; 503 is UNAVAILABLE, 404 is NOT_FOUND.
    """

    name = TENSORFLOW_SERVING_GRPC
    service = PREDICTION_SERVICE
    permissions: Mapping[str, Permission] = dict.fromkeys(PREDICTION_SERVICE.methods_by_name, "infer")
    queued_methods = frozenset({"Predict", "Classify", "Regress", "MultiInference"})

    def __init__(self, *, loading_status: LoadingStatus = 404) -> None:
        self._loading_error = loading_error(loading_status)

    def refusal_message(self, error: InferenceError, /) -> bytes | None:
        del error
        return None

    def target_model(self, data: bytes, /) -> str:
        del data
        return ""

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        del stopping
        calls = _Calls(engine, self._loading_error)
        methods = {
            "Predict": calls.predict,
            "Classify": calls.classify,
            "Regress": calls.regress,
            "MultiInference": calls.multi_inference,
            "GetModelMetadata": calls.model_metadata,
        }
        return {name: unary_handler(self.name, method, grpc_code) for name, method in methods.items()}


class TensorFlowModelService:
    """The state of models. The real server's method that replaces the models is refused."""

    name = TENSORFLOW_SERVING_GRPC
    service = MODEL_SERVICE
    permissions: Mapping[str, Permission] = {"GetModelStatus": "infer", "HandleReloadConfigRequest": "admin"}
    queued_methods: frozenset[str] = frozenset()

    def refusal_message(self, error: InferenceError, /) -> bytes | None:
        del error
        return None

    def target_model(self, data: bytes, /) -> str:
        del data
        return ""

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        del stopping

        async def get_model_status(data: bytes, context: RequestContext) -> bytes:
            del context
            request = _parse("GetModelStatusRequest", data, engine)
            versions = find_versions(engine.registry, target_of(request, "status"))
            content = model_status(versions, engine.server_not_ready_reason)
            for status in content["model_version_status"]:
                # A version that is no int64 number has no field in the message.
                status["version"] = model_spec("", status["version"]).version.value
            return ParseDict(content, message_class(f"{_PACKAGE}.GetModelStatusResponse")()).SerializeToString()

        async def refuse_reload(data: bytes, context: RequestContext) -> bytes:
            del data, context
            message = "Models are configured where the server starts; the repository API of KServe V2 reloads them"
            raise InferenceError(ErrorKind.UNSUPPORTED, message)

        return {
            "GetModelStatus": unary_handler(self.name, get_model_status),
            "HandleReloadConfigRequest": unary_handler(self.name, refuse_reload),
        }


class _Calls:
    """The methods of `PredictionService` over an engine, from message bytes to message bytes."""

    def __init__(self, engine: Engine, loading_error: ErrorKind) -> None:
        self._engine = engine
        self._loading_error = loading_error

    async def predict(self, data: bytes, context: RequestContext) -> bytes:
        return await self._infer(
            "PredictRequest",
            data,
            context,
            lambda message: PredictCodec(self._engine.registry, message, self._engine.limits, self._loading_error),
        )

    async def classify(self, data: bytes, context: RequestContext) -> bytes:
        return await self._infer_examples("Classification", Method.CLASSIFY, data, context)

    async def regress(self, data: bytes, context: RequestContext) -> bytes:
        return await self._infer_examples("Regression", Method.REGRESS, data, context)

    async def multi_inference(self, data: bytes, context: RequestContext) -> bytes:
        def codec(message: Any) -> ExamplesCodec:
            tasks = read_tasks(message.tasks)
            target = target_of(message.tasks[0], "predict")
            return ExamplesCodec(
                self._engine.registry, target, message.input, tasks, encode_multi_inference, self._loading_error
            )

        return await self._infer("MultiInferenceRequest", data, context, codec)

    async def model_metadata(self, data: bytes, context: RequestContext) -> bytes:
        del context
        request = _parse("GetModelMetadataRequest", data, self._engine)
        target = target_of(request, "metadata")
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != _SIGNATURE_DEF:
                raise invalid(f"Metadata field {field} is not supported")
        registration = find_ready_version(self._engine.registry, target, self._loading_error)
        definitions = message_class(f"{_PACKAGE}.SignatureDefMap")()
        ParseDict({_SIGNATURE_DEF: signature_definitions(registration.ready_servable())}, definitions)
        source = registration.source
        response = message_class(f"{_PACKAGE}.GetModelMetadataResponse")(
            model_spec=model_spec(source.name, source.version)
        )
        response.metadata[_SIGNATURE_DEF].Pack(definitions)
        return response.SerializeToString()

    async def _infer_examples(self, prefix: str, method: Method, data: bytes, context: RequestContext) -> bytes:
        def encode_response(results: Sequence[tuple[Any, Any]]) -> Any:
            ((spec, result),) = results
            return message_class(f"{_PACKAGE}.{prefix}Response")(model_spec=spec, result=result)

        def codec(message: Any) -> ExamplesCodec:
            verb = "classify" if method is Method.CLASSIFY else "regress"
            target = target_of(message, verb)
            tasks = [(message.model_spec.signature_name, method)]
            return ExamplesCodec(
                self._engine.registry, target, message.input, tasks, encode_response, self._loading_error
            )

        return await self._infer(f"{prefix}Request", data, context, codec)

    async def _infer(
        self, name: str, data: bytes, context: RequestContext, create_codec: Callable[[Any], InferCodec]
    ) -> bytes:
        context.operation = name.removesuffix("Request")
        try:
            # Parse in the event loop: parsing holds the GIL in any thread, and the model names the queue.
            codec = create_codec(_parse(name, data, self._engine))
        except InferenceError as error:
            raise self._engine.report_refused(context, error) from None
        try:
            return await self._engine.handle(context, codec.model_name, codec.decode, codec.encode)
        except InferenceError as error:
            raise codec.map_error_path(error) from None


def _parse(name: str, data: bytes, engine: Engine) -> Any:
    message_type = message_class(f"{_PACKAGE}.{name}")
    check_message(data, message_type.DESCRIPTOR, engine.limits)
    try:
        return message_type.FromString(data)
    except DecodeError:
        raise invalid(f"Expected a {name}, got other bytes") from None
