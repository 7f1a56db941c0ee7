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
    Endpoint,
    HttpListener,
    HttpRequest,
    Permission,
    infer_endpoint,
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
        return [
            infer_endpoint(f"{_MODEL}{suffix}", verb=verb, start=partial(self._start, engine, verb))
            for suffix in ("", "/versions/{version:int}", "/labels/{label:str}")
            for verb in _INFERENCES
        ]

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
