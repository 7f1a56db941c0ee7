"""The REST routes of the Open Inference Protocol."""

from collections.abc import Sequence

import msgspec
from litestar import Response

from app import __version__
from app.engine.engine import Engine
from app.engine.models.registry import Registration
from app.engine.request_context import RequestContext
from app.protocols.error_body import error_object
from app.protocols.inference_call import HttpAnswer, InferenceHead
from app.protocols.kserve_v2.codec import decode, encode
from app.protocols.kserve_v2.generate import generate_endpoints
from app.protocols.kserve_v2.model_config import config_endpoints
from app.protocols.kserve_v2.rendering import OutputSelection, declared_outputs
from app.protocols.kserve_v2.repository import repository_endpoints
from app.protocols.kserve_v2.wire import (
    WireLive,
    WireMetadata,
    WireModelReady,
    WireModels,
    WireReady,
    WireRequest,
    WireResponse,
    WireServerMetadata,
    WireTensorSpec,
)
from app.protocols.protocol import INFER_FAILURES, Endpoint, HttpRequest, json_response
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import TensorSpec

__all__ = ("EXTENSIONS", "KServeV2", "model_metadata")

EXTENSIONS = (
    "classification",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "model_repository",
    "model_configuration",
)
"""The served extensions, under Triton's names."""

_PLATFORMS = {"onnx": "onnx_onnxv1"}
"""Platform names from the V2 specification; it has none for Python and transformers models."""

_HEADER_LENGTH = "inference-header-content-length"
_MODEL = "/v2/models/{target:str}"
_VERSION = f"{_MODEL}/versions/{{version:str}}"


class KServeV2:
    """KServe's V2 protocol, the Open Inference Protocol, with Triton's extensions."""

    name = "kserve-v2"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        async def server_metadata(_: HttpRequest) -> Response[bytes]:
            server = {"name": "charioteer", "version": __version__, "extensions": EXTENSIONS}
            return json_response(msgspec.json.encode(server))

        async def live(_: HttpRequest) -> Response[bytes]:
            return json_response(b'{"live":true}')

        async def ready(_: HttpRequest) -> Response[bytes]:
            if not engine.not_ready_reason:
                return json_response(b'{"ready":true}')
            return json_response(msgspec.json.encode({"ready": False, "error": engine.not_ready_reason}), status=503)

        async def models(_: HttpRequest) -> Response[bytes]:
            names = sorted({registration.source.name for registration in engine.registry.registrations})
            return json_response(msgspec.json.encode({"models": names}))

        async def metadata(request: HttpRequest) -> Response[bytes]:
            registration = _registration(engine, request)
            return json_response(msgspec.json.encode(model_metadata(engine, registration)))

        async def model_ready(request: HttpRequest) -> Response[bytes]:
            registration = engine.ready_model(request.path_params["target"], request.path_params.get("version"))
            return json_response(msgspec.json.encode({"name": registration.source.name, "ready": True}))

        def start(head: InferenceHead, body: bytes, _: RequestContext) -> _Call:
            registration = engine.registry.find(engine.registry.name_for_path(head.target), head.version)
            return _Call(body, head, registration, engine.limits)

        endpoints = [
            Endpoint(
                method="GET",
                path="/v2",
                handle=server_metadata,
                summary="About the server",
                answer=WireServerMetadata,
                permission="infer",
            ),
            Endpoint(
                method="GET",
                path="/v2/health/live",
                handle=live,
                summary="Whether the server is alive",
                answer=WireLive,
                permission="open",
            ),
            Endpoint(
                method="GET",
                path="/v2/health/ready",
                handle=ready,
                summary="Whether every model is ready",
                answer=WireReady,
                failures=(503,),
                permission="open",
            ),
            Endpoint(
                method="GET",
                path="/v2/models",
                handle=models,
                summary="Names of the models",
                answer=WireModels,
                permission="infer",
            ),
        ]
        for path in (_MODEL, _VERSION):
            endpoints += [
                Endpoint(
                    method="GET",
                    path=path,
                    handle=metadata,
                    summary="Metadata of a model",
                    answer=WireMetadata,
                    failures=(404, 503),
                    permission="infer",
                ),
                Endpoint(
                    method="GET",
                    path=f"{path}/ready",
                    handle=model_ready,
                    summary="Whether a model is ready",
                    answer=WireModelReady,
                    failures=(404, 503),
                    permission="infer",
                ),
                Endpoint(
                    method="POST",
                    path=f"{path}/infer",
                    start=start,
                    queue_model=str,
                    summary="Infer with a model",
                    body=WireRequest,
                    answer=WireResponse,
                    media_types=("application/octet-stream",),
                    failures=INFER_FAILURES,
                    permission="infer",
                ),
            ]
        return [
            *endpoints,
            *generate_endpoints(engine),
            *repository_endpoints(engine),
            *config_endpoints(engine),
        ]

    def error_body(self, error: InferenceError, /) -> bytes:
        return error_object(error)


class _Call:
    """One inference: the encoding depends on the outputs that the request selects."""

    def __init__(self, body: bytes, head: InferenceHead, registration: Registration, limits: Limits) -> None:
        self.model_name = registration.source.name
        self._body = body
        self._head = head
        self._servable = registration.ready_servable()
        self._limits = limits
        self._selection = OutputSelection()

    def decode(self) -> InferenceRequest:
        request, self._selection = decode(
            self._body,
            self._head.headers.get(_HEADER_LENGTH),
            self._servable,
            model_name=self.model_name,
            model_version=self._head.version,
            limits=self._limits,
        )
        return request

    def encode(self, response: InferenceResponse, /) -> HttpAnswer:
        content, json_length = encode(response, self._servable, self._selection)
        if json_length is None:
            return HttpAnswer(content=content)
        headers = ((_HEADER_LENGTH, str(json_length)),)
        return HttpAnswer(content=content, media_type="application/octet-stream", headers=headers)

    def map_error_path(self, error: InferenceError, /) -> InferenceError:
        return error


def model_metadata(engine: Engine, registration: Registration) -> WireMetadata:
    """Return a model's inputs and outputs for the metadata call."""
    servable = registration.ready_servable()
    return WireMetadata(
        name=registration.source.name,
        versions=[version.source.version for version in reversed(engine.registry.versions(registration.source.name))],
        platform=_PLATFORMS.get(servable.description.platform, servable.description.platform),
        inputs=[_spec(spec) for spec in servable.inputs],
        outputs=[_spec(spec) for spec in declared_outputs(servable)],
    )


def _registration(engine: Engine, request: HttpRequest) -> Registration:
    name = engine.registry.name_for_path(request.path_params["target"])
    return engine.registry.find(name, request.path_params.get("version"))


def _spec(spec: TensorSpec) -> WireTensorSpec:
    return WireTensorSpec(name=spec.name, datatype=spec.datatype, shape=spec.shape)
