"""TensorFlow Serving's REST API: the handler for every method and path of its port."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from litestar import Response

from app.engine.engine import Engine
from app.engine.request_context import RequestContext
from app.protocols.media_type import PROMETHEUS
from app.protocols.permission import Permission
from app.protocols.protocol import INFER_FAILURES, Endpoint, HttpRequest, json_response
from app.protocols.request_body import read_inference_body
from app.protocols.request_info import RETRY_AFTER, read_request_info
from app.protocols.tensorflow_serving.codec import TensorFlowRequestCodec
from app.protocols.tensorflow_serving.inputs import map_error_path
from app.protocols.tensorflow_serving.lookup import LoadingStatus, find_ready_version, find_versions, loading_error
from app.protocols.tensorflow_serving.metrics import RequestMetrics
from app.protocols.tensorflow_serving.paths import METRICS_PATH, ModelTarget, is_api_path, parse_target, served_methods
from app.protocols.tensorflow_serving.signatures import signature_definitions
from app.protocols.tensorflow_serving.status import OK, code_name, http_status, indented_json, model_status
from app.protocols.tensorflow_serving.values import json_document
from app.protocols.tensorflow_serving.wire import (
    WireExamples,
    WireModelMetadata,
    WireModelStatus,
    WirePredict,
    WirePredictions,
    WireResults,
)
from tasks.inference.error import ErrorKind, InferenceError, invalid

__all__ = ("TensorFlowServing",)

_CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
_NOT_FOUND = b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>\n</HEAD><BODY>\n<H1>Not Found</H1>\n</BODY></HTML>\n"
_MODEL = "/v1/models/{target:str}"
_INFERENCES = frozenset({"predict", "classify", "regress"})
_FAILURES = (*INFER_FAILURES, 501)


class TensorFlowServing:
    """TensorFlow Serving's REST API, on its own port.

    Args:
        cors: whether responses allow pages of any origin to read them.
        loading_status: the HTTP status for a model that is loading. The real server answers 404.
        metrics: shared with the protocol's gRPC services; None for metrics of this listener only.
    """

    name = "tensorflow-serving"
    title = "TensorFlow Serving"

    def __init__(
        self, *, cors: bool = False, loading_status: LoadingStatus = 404, metrics: RequestMetrics | None = None
    ) -> None:
        self._headers = _CORS_HEADERS if cors else {}
        self._loading_error = loading_error(loading_status)
        self._metrics = metrics

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        handler = self.handler(engine)
        endpoints: list[Endpoint] = []
        for suffix, target_text in (
            ("", ""),
            ("/versions/{version:int}", "version "),
            ("/labels/{label:str}", "label "),
        ):
            path = f"{_MODEL}{suffix}"
            endpoints += [
                Endpoint(
                    method="GET",
                    path=path,
                    handle=handler,
                    summary=f"The state of a model's {target_text or 'versions'}".strip(),
                    answer=WireModelStatus,
                    failures=(400, 404),
                    permission="infer",
                ),
                Endpoint(
                    method="GET",
                    path=f"{path}/metadata",
                    handle=handler,
                    summary="The signatures of a model",
                    answer=WireModelMetadata,
                    failures=(400, 404, 503),
                    permission="infer",
                ),
            ]
            for verb, body, response_type in (
                ("predict", WirePredict, WirePredictions),
                ("classify", WireExamples, WireResults),
                ("regress", WireExamples, WireResults),
            ):
                endpoints.append(
                    Endpoint(
                        method="POST",
                        path=path,
                        verb=verb,
                        handle=handler,
                        queue_model=str,
                        summary=f"Ask a model to {verb}",
                        body=body,
                        answer=response_type,
                        failures=_FAILURES,
                        permission="infer",
                    )
                )
        return endpoints

    def error_body(self, error: InferenceError, /) -> bytes:
        return json_document("error", str(error))

    def permission(self, request: HttpRequest, /) -> Permission:
        if _path_of(request).partition("?")[0] == METRICS_PATH:
            # The metrics page accepts every method.
            return "read"
        # Browsers send preflight requests without credentials.
        return "open" if request.method == "OPTIONS" else "infer"

    def handler(self, engine: Engine, /) -> Callable[[HttpRequest], Awaitable[Response[Any]]]:
        metrics = self._metrics or RequestMetrics(engine.registry.has_model)

        async def handle(request: HttpRequest) -> Response[Any]:
            path = _path_of(request)
            if path.partition("?")[0] == METRICS_PATH:
                return _metrics_page(metrics, path)
            if not is_api_path(path):
                return Response(_NOT_FOUND, status_code=404, media_type="text/html")
            if request.method == "OPTIONS":
                # The real server accepts any origin that contains a URL scheme.
                origin = request.headers.get("origin", "")
                allowed = "http://" in origin or "https://" in origin
                headers = {**self._headers, "Allow": ", ".join(served_methods(path))}
                return Response(b"", status_code=200 if allowed else 400, headers=headers)
            return await self._respond(engine, metrics, request, path)

        return handle

    async def _respond(
        self, engine: Engine, metrics: RequestMetrics, request: HttpRequest, path: str
    ) -> Response[bytes]:
        started = time.perf_counter_ns()
        target, code = None, OK
        try:
            target = parse_target(request.method, path)
            body = await self._response_body(engine, metrics, request, target)
            response = json_response(body)
        except InferenceError as error:
            code = code_name(error.kind)
            response = json_response(self.error_body(error), http_status(error.kind))
            if error.retry_after is not None:
                response.headers[RETRY_AFTER] = str(error.retry_after)
        api = target.verb if target and target.verb in _INFERENCES else ""
        metrics.record_request(target.model if target else "", api, code, time.perf_counter_ns() - started, "REST")
        response.headers.update(self._headers)
        return response

    async def _response_body(
        self, engine: Engine, metrics: RequestMetrics, request: HttpRequest, target: ModelTarget
    ) -> bytes:
        if target.verb == "status":
            return indented_json(model_status(find_versions(engine.registry, target), engine.server_not_ready_reason))
        if target.verb == "metadata":
            return _metadata(engine, target, self._loading_error)
        context = read_request_info(request, self.name)
        body = await _read_body(request, engine, context, target.model)
        codec = TensorFlowRequestCodec(engine.registry, target, body, engine.limits, self._loading_error)
        try:
            answer = await engine.handle(context, target.model, codec.decode, codec.encode)
        except InferenceError as error:
            raise map_error_path(error, codec.inputs) from None
        metrics.record_model_run(target.model, target.verb.capitalize(), codec.platform, codec.model_nanoseconds)
        return answer


def _path_of(request: HttpRequest) -> str:
    """Return the path as received, percent-encoded and with its query, which the real server keeps."""
    path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
    query = request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _metrics_page(metrics: RequestMetrics, path: str) -> Response[bytes]:
    if path != METRICS_PATH:
        message = f"Unexpected path: {path}. Should be {METRICS_PATH}"
        return Response(message.encode(), status_code=400, media_type="text/plain")
    return Response(metrics.render(), media_type=PROMETHEUS)


async def _read_body(request: HttpRequest, engine: Engine, context: RequestContext, model_name: str) -> bytes:
    try:
        return await read_inference_body(request, engine, context, model_name)
    except InferenceError as error:
        if error.kind is ErrorKind.UNSUPPORTED:
            # UNSUPPORTED is 501 in this protocol, but an unknown content encoding is a client error.
            raise invalid(error.message, error.path) from None
        raise


def _metadata(engine: Engine, target: ModelTarget, error_kind: ErrorKind) -> bytes:
    registration = find_ready_version(engine.registry, target, error_kind)
    definitions = signature_definitions(registration.ready_servable())
    source = registration.source
    return indented_json(
        {
            "model_spec": {"name": source.name, "signature_name": "", "version": source.version},
            "metadata": {"signature_def": {"signature_def": definitions}},
        }
    )
