"""The routes of KServe's V1 protocol."""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.inference_call import RequestHead, media_type_of
from app.core.protocols.kserve_v1.cloud_events import EVENT_HEADERS
from app.core.protocols.kserve_v1.codec import RequestCodec
from app.core.protocols.kserve_v1.wire import ListedModels, WireModels, WireRequest, WireResponse
from app.core.protocols.protocol import (
    Endpoint,
    HttpProtocol,
    HttpRequest,
    ModelReady,
    infer_endpoint,
    read_endpoint,
)
from tasks.inference.error import ErrorKind, InferenceError, truncate

CodecT = TypeVar("CodecT", bound=RequestCodec)

_MODEL = "/v1/models/{target:str}"


def v1_inference(summary: str, **fields: Any) -> Endpoint:
    """Return an endpoint of a model that takes instances."""
    return infer_endpoint(_MODEL, summary, body=WireRequest, media_types=("image/*",), **fields)


class KServeV1(HttpProtocol):
    """KServe's V1 protocol: lists of instances in, lists of predictions out."""

    name = "kserve-v1"
    request_headers = response_headers = EVENT_HEADERS

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        def models(_: HttpRequest) -> WireModels:
            listed = [model for list_models in engine.provided.find(ListedModels) for model in list_models()]
            return WireModels(models=engine.registry.names, data=listed)

        def model_ready(request: HttpRequest) -> ModelReady:
            name = request.path_params["target"]
            try:
                engine.ready_model(name)
            except InferenceError as error:
                raise _kserve_error(engine, error, name) from None
            return ModelReady(name)

        return [
            read_endpoint("/v1/models", "Names of the models", handle=models, answer=WireModels),
            read_endpoint(
                _MODEL, "Whether a model is ready", handle=model_ready, answer=ModelReady, failures=(404, 503)
            ),
            v1_inference(
                "Predict with a model", verb="predict", start=partial(create_codec, engine), answer=WireResponse
            ),
        ]


def create_codec(
    engine: Engine,
    head: RequestHead,
    body: bytes,
    context: RequestContext,
    kind: type[CodecT] = RequestCodec,
) -> CodecT:
    """Return the codec of a request. Raise MODEL_NOT_FOUND or MODEL_NOT_READY."""
    try:
        registration = engine.registry.find(head.target)
    except InferenceError as error:
        raise _kserve_error(engine, error, head.target) from None
    return kind(
        body=body,
        media_type=media_type_of(head.headers.get("content-type", "")),
        headers=head.headers,
        servable=registration.ready_servable(),
        model_name=registration.source.name,
        request_id=context.request_id,
        limits=engine.limits,
    )


def _kserve_error(engine: Engine, error: InferenceError, name: str) -> InferenceError:
    """Return `error` with KServe's message for a missing or unready model, and the reason."""
    if error.kind is ErrorKind.MODEL_NOT_FOUND:
        return InferenceError(error.kind, f"Model with name {truncate(name)} does not exist.")
    latest = next(iter(engine.registry.versions(name)), None)
    reason = latest.reason if latest and not engine.server_not_ready_reason else error.message
    return InferenceError(error.kind, f"Model with name {name} is not ready. {reason}".strip())
