"""The REST routes of the Open Inference Protocol."""

from collections.abc import Sequence
from functools import partial

import msgspec
from litestar import Response

from app import __version__
from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registration
from app.core.engine.request_context import RequestContext
from app.core.protocols.inference_call import CodecCall, HttpResponse, RequestHead
from app.core.protocols.kserve_v2.codec import decode, encode
from app.core.protocols.kserve_v2.rendering import OutputSelection, declared_outputs
from app.core.protocols.kserve_v2.wire import WireMetadata, WireRequest, WireResponse, WireServerMetadata
from app.core.protocols.protocol import (
    Endpoint,
    HttpProtocol,
    HttpRequest,
    ModelReady,
    infer_endpoint,
    json_response,
    probe_endpoint,
    read_endpoint,
)
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse

MODEL_PATH = "/v2/models/{target:str}"
VERSION_PATH = f"{MODEL_PATH}/versions/{{version:str}}"

_EXTENSIONS = ("classification", "binary_tensor_data", "parameters")
"""Under Triton's names."""

_PLATFORMS = {"onnx": "onnx_onnxv1"}
"""Platform names from the V2 specification; it has none for Python and transformers models."""

_HEADER_LENGTH = "inference-header-content-length"
_BINARY = "application/octet-stream"


class KServeV2(HttpProtocol):
    """KServe's V2 protocol, the Open Inference Protocol."""

    name = "kserve-v2"
    request_headers = response_headers = (_HEADER_LENGTH,)

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        async def ready(_: HttpRequest) -> Response[bytes]:
            if not engine.not_ready_reason:
                return json_response(b'{"ready":true}')
            return json_response(msgspec.json.encode({"ready": False, "error": engine.not_ready_reason}), status=503)

        def about(_: HttpRequest) -> WireServerMetadata:
            return server_metadata(engine)

        def models(_: HttpRequest) -> object:
            return {"models": engine.registry.names}

        def metadata(request: HttpRequest) -> WireMetadata:
            return model_metadata(engine, find_registration(engine, request))

        def model_ready(request: HttpRequest) -> ModelReady:
            registration = engine.ready_model(request.path_params["target"], request.path_params.get("version"))
            return ModelReady(registration.source.name)

        endpoints = [
            read_endpoint("/v2", "About the server", handle=about, answer=WireServerMetadata),
            probe_endpoint(
                "/v2/health/live",
                "Whether the server is alive",
                handle=lambda _: {"live": True},
                answer=dict[str, bool],
            ),
            probe_endpoint(
                "/v2/health/ready",
                "Whether every model is ready",
                handle=ready,
                answer=dict[str, bool],
                failures=(503,),
            ),
            read_endpoint("/v2/models", "Names of the models", handle=models, answer=dict[str, list[str]]),
        ]
        for path in (MODEL_PATH, VERSION_PATH):
            describe = partial(read_endpoint, failures=(404, 503))
            endpoints += [
                describe(path, "Metadata of a model", handle=metadata, answer=WireMetadata),
                describe(f"{path}/ready", "Whether a model is ready", handle=model_ready, answer=ModelReady),
                infer_endpoint(
                    f"{path}/infer",
                    "Infer with a model",
                    start=partial(_start, engine),
                    queue_model=lambda head: engine.registry.name_for_path(head.target),
                    body=WireRequest,
                    answer=WireResponse,
                    media_types=(_BINARY,),
                ),
            ]
        return endpoints


def _start(engine: Engine, head: RequestHead, body: bytes, context: RequestContext) -> CodecCall:
    registration = engine.registry.find(context.model_name, head.version)
    name, servable = registration.source.name, registration.ready_servable()
    selection = OutputSelection()

    def decode_body() -> InferenceRequest:
        nonlocal selection
        request, selection = decode(
            body,
            head.headers.get(_HEADER_LENGTH),
            servable,
            model_name=name,
            model_version=head.version,
            limits=engine.limits,
        )
        return request

    def encode_response(response: InferenceResponse) -> HttpResponse:
        content, json_length = encode(response, servable, selection)
        if json_length is None:
            return HttpResponse(content=content)
        return HttpResponse(content=content, media_type=_BINARY, headers=((_HEADER_LENGTH, str(json_length)),))

    return CodecCall(model_name=name, decode=decode_body, encode=encode_response)


def find_registration(engine: Engine, request: HttpRequest) -> Registration:
    """Return the version of a model that a path names. Raise MODEL_NOT_FOUND."""
    path = request.path_params
    return engine.registry.find(engine.registry.name_for_path(path["target"]), path.get("version"))


def server_metadata(engine: Engine) -> WireServerMetadata:
    """Return the name and version of the server, and the extensions that it has."""
    return WireServerMetadata(name="charioteer", version=__version__, extensions=(*_EXTENSIONS, *engine.extensions))


def model_metadata(engine: Engine, registration: Registration) -> WireMetadata:
    """Return a model's inputs and outputs for the metadata call."""
    servable = registration.ready_servable()
    return WireMetadata(
        name=registration.source.name,
        versions=[version.source.version for version in reversed(engine.registry.versions(registration.source.name))],
        platform=_PLATFORMS.get(servable.description.platform, servable.description.platform),
        inputs=servable.inputs,
        outputs=declared_outputs(servable),
    )
