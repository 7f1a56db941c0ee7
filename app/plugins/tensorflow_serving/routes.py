"""TensorFlow Serving's REST API: the handler for every method and path of its port."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from litestar import Response

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.http_inference import error_response, to_response
from app.core.protocols.inference_call import HttpResponse, RequestHead
from app.core.protocols.protocol import (
    INFER_FAILURES,
    Endpoint,
    HttpListener,
    HttpRequest,
    Permission,
    infer_endpoint,
    read_endpoint,
)
from app.core.removed import removed_advice
from app.plugins.tensorflow_serving.codec import RestCodec
from app.plugins.tensorflow_serving.signatures import signature_definitions
from app.plugins.tensorflow_serving.targets import (
    TENSORFLOW_SERVING,
    ModelTarget,
    Verb,
    find_ready_version,
    find_versions,
    indented_json,
    is_api_path,
    model_status,
    parse_target,
    read_version,
    served_methods,
)
from app.plugins.tensorflow_serving.values import json_document
from tasks.inference.error import ErrorKind, InferenceError

_CORS_HEADERS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "POST, GET",
    "access-control-allow-headers": "Content-Type",
}
_NOT_FOUND = b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>\n</HEAD><BODY>\n<H1>Not Found</H1>\n</BODY></HTML>\n"
_MODEL = "/v1/models/{target:str}"
_INFERENCES: Sequence[Verb] = ("predict", "classify", "regress")
_NOT_IMPLEMENTED = 501


# The types of bodies are for OpenAPI: requests are decoded by `values`.
class WirePredict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tensors in rows (`instances`) or in columns (`inputs`)."""

    signature_name: str = "serving_default"
    instances: list[Any] | None = None
    inputs: Any = None


class WirePredictions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`predictions` for rows, `outputs` for columns."""

    predictions: list[Any] | None = None
    outputs: Any = None


class WireExamples(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Examples, each an object of features, and features that all examples share."""

    examples: list[dict[str, Any]]
    context: dict[str, Any] = {}
    signature_name: str = ""


class WireResults(msgspec.Struct, frozen=True, kw_only=True):
    """For each example, pairs of label and score, or one number."""

    results: list[Any]


class WireModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Every version of a model, the latest first.

    `state` is LOADING, AVAILABLE, UNLOADING or END; the `error_code` of `status` is OK without an error.
    """

    model_version_status: list[dict[str, Any]]


class WireModelMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The resolved version, and its signatures."""

    model_spec: dict[str, str]
    metadata: dict[str, Any]


class TensorFlowServing(HttpListener):
    """TensorFlow Serving's REST API, on its own port.

    Args:
        any_origin: whether responses allow pages of any origin to read them, with the headers of the real server.
    """

    name = TENSORFLOW_SERVING
    title = "TensorFlow Serving"

    def __init__(self, *, any_origin: bool = False) -> None:
        self._headers = tuple(_CORS_HEADERS.items()) if any_origin else ()

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        endpoints: list[Endpoint] = []
        for suffix, target_text in (
            ("", "versions"),
            ("/versions/{version:int}", "version"),
            ("/labels/{label:str}", "label"),
        ):
            path = f"{_MODEL}{suffix}"
            state, signatures = f"The state of a model's {target_text}", "The signatures of a model"
            endpoints += [
                read_endpoint(path, state, answer=WireModelStatus, failures=(400, 404)),
                read_endpoint(f"{path}/metadata", signatures, answer=WireModelMetadata, failures=(400, 404, 503)),
            ]
            endpoints += [
                infer_endpoint(
                    path,
                    f"Ask a model to {verb}",
                    verb=verb,
                    start=partial(self._start, engine, verb),
                    body=WirePredict if verb == "predict" else WireExamples,
                    answer=WirePredictions if verb == "predict" else WireResults,
                    failures=(*INFER_FAILURES, _NOT_IMPLEMENTED),
                )
                for verb in _INFERENCES
            ]
        return endpoints

    def error_body(self, error: InferenceError, /) -> bytes:
        return json_document("error", str(error))

    def error_response(self, error: InferenceError, /) -> HttpResponse:
        answer = error_response(self, error)
        status = _NOT_IMPLEMENTED if error.kind is ErrorKind.UNSUPPORTED else answer.status
        return msgspec.structs.replace(answer, status=status, headers=(*answer.headers, *self._headers))

    def permission(self, request: HttpRequest, /) -> Permission:
        # Browsers send preflight requests without credentials.
        return "open" if request.method == "OPTIONS" else "infer"

    def handler(self, engine: Engine, /) -> Callable[[HttpRequest], Awaitable[Response[Any]]]:
        async def handle(request: HttpRequest) -> Response[Any]:
            path = _path_of(request)
            if advice := removed_advice(path.partition("?")[0]):
                return Response(self.error_body(InferenceError(ErrorKind.MODEL_NOT_FOUND, advice)), status_code=404)
            if not is_api_path(path):
                return Response(_NOT_FOUND, status_code=404, media_type="text/html")
            if request.method == "OPTIONS":
                # The real server accepts any origin that contains a URL scheme.
                origin = request.headers.get("origin", "")
                allowed = "http://" in origin or "https://" in origin
                headers = {**dict(self._headers), "Allow": ", ".join(served_methods(path))}
                return Response(b"", status_code=200 if allowed else 400, headers=headers)
            return self._respond(engine, request, path)

        return handle

    def _respond(self, engine: Engine, request: HttpRequest, path: str) -> Response[bytes]:
        try:
            content = _description(engine, parse_target(request.method, path))
        except InferenceError as error:
            return to_response(self.error_response(error))
        return to_response(HttpResponse(content=content, headers=self._headers))

    def _start(self, engine: Engine, verb: Verb, head: RequestHead, body: bytes, _: RequestContext) -> RestCodec:
        target = ModelTarget(model=head.target, version=read_version(head.version), label=head.label, verb=verb)
        return RestCodec(engine=engine, target=target, body=body, headers=self._headers)


def _description(engine: Engine, target: ModelTarget) -> bytes:
    if target.verb == "status":
        return indented_json(model_status(find_versions(engine.registry, target), engine.server_not_ready_reason))
    registration = find_ready_version(engine.registry, target)
    source = registration.source
    return indented_json(
        {
            "model_spec": {"name": source.name, "signature_name": "", "version": source.version},
            "metadata": {"signature_def": {"signature_def": signature_definitions(registration.ready_servable())}},
        }
    )


def _path_of(request: HttpRequest) -> str:
    """Return the path as received, percent-encoded and with its query, which the real server keeps."""
    path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
    query = request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path
