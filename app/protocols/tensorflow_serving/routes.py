"""TensorFlow Serving's REST API: the handler for every method and path of its port."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from litestar import Response

from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.protocols.caller import caller_of
from app.protocols.media_type import PROMETHEUS
from app.protocols.permission import Permission
from app.protocols.protocol import INFER_FAILURES, Endpoint, HttpRequest, json_response
from app.protocols.request_body import body_to_infer
from app.protocols.tensorflow_serving.exchange import Exchange
from app.protocols.tensorflow_serving.inputs import named
from app.protocols.tensorflow_serving.lookup import servable_for, versions_for
from app.protocols.tensorflow_serving.metrics import RequestMetrics
from app.protocols.tensorflow_serving.paths import METRICS_PATH, Address, is_of_the_api, read_address, served_methods
from app.protocols.tensorflow_serving.signatures import signatures
from app.protocols.tensorflow_serving.status import OK, code_name, http_status, indented, model_status
from app.protocols.tensorflow_serving.wire import (
    WireExamples,
    WireModelMetadata,
    WireModelStatus,
    WirePredict,
    WirePredictions,
    WireResults,
)
from app.protocols.tensorflow_serving.writing import document_text, string_text
from tasks.exchange.error import ErrorKind, InferenceError, invalid

__all__ = ("TensorFlowServing",)

_CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
_NOT_FOUND = b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>\n</HEAD><BODY>\n<H1>Not Found</H1>\n</BODY></HTML>\n"
_MODEL = "/v1/models/{target:str}"
_FAILURES = (*INFER_FAILURES, 501)


class TensorFlowServing:
    """TensorFlow Serving's REST API, on its own port.

    Args:
        cors: whether responses allow pages of any origin to read them.
        loading_status: the HTTP status for a model that is loading. The real server answers 404.
    """

    name = "tensorflow-serving"
    title = "TensorFlow Serving"

    def __init__(self, *, cors: bool = False, loading_status: Literal[404, 503] = 404) -> None:
        self._headers = _CORS_HEADERS if cors else {}
        self._if_loading = ErrorKind.MODEL_NOT_READY if loading_status == 503 else ErrorKind.MODEL_NOT_FOUND

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        answer = self.answer(engine)
        endpoints: list[Endpoint] = []
        for suffix, described in (("", ""), ("/versions/{version:int}", "version "), ("/labels/{label:str}", "label ")):
            path = f"{_MODEL}{suffix}"
            endpoints += [
                Endpoint(
                    method="GET",
                    path=path,
                    handle=answer,
                    summary=f"The state of a model's {described or 'versions'}".strip(),
                    answer=WireModelStatus,
                    failures=(400, 404),
                    permission="infer",
                ),
                Endpoint(
                    method="GET",
                    path=f"{path}/metadata",
                    handle=answer,
                    summary="The signatures of a model",
                    answer=WireModelMetadata,
                    failures=(400, 404, 503),
                    permission="infer",
                ),
            ]
            for verb, body, kind in (
                ("predict", WirePredict, WirePredictions),
                ("classify", WireExamples, WireResults),
                ("regress", WireExamples, WireResults),
            ):
                endpoints.append(
                    Endpoint(
                        method="POST",
                        path=path,
                        verb=verb,
                        handle=answer,
                        queue=str,
                        summary=f"Ask a model to {verb}",
                        body=body,
                        answer=kind,
                        failures=_FAILURES,
                        permission="infer",
                    )
                )
        return endpoints

    def error_body(self, error: InferenceError, /) -> bytes:
        return document_text("error", string_text(str(error)))

    def permission(self, request: HttpRequest, /) -> Permission:
        if _path_of(request).partition("?")[0] == METRICS_PATH:
            # The metrics answer to every method.
            return "read"
        # Browsers send preflight requests without credentials.
        return "open" if request.method == "OPTIONS" else "infer"

    def answer(self, engine: Engine, /) -> Callable[[HttpRequest], Awaitable[Response[Any]]]:
        metrics = RequestMetrics(engine.registry.knows)

        async def answer(request: HttpRequest) -> Response[Any]:
            path = _path_of(request)
            if path.partition("?")[0] == METRICS_PATH:
                return _metrics_page(metrics, path)
            if not is_of_the_api(path):
                return Response(_NOT_FOUND, status_code=404, media_type="text/html")
            if request.method == "OPTIONS":
                # The real server accepts any origin that contains a URL scheme.
                origin = request.headers.get("origin", "")
                allowed = "http://" in origin or "https://" in origin
                headers = {**self._headers, "Allow": ", ".join(served_methods(path))}
                return Response(b"", status_code=200 if allowed else 400, headers=headers)
            return await self._answer(engine, metrics, request, path)

        return answer

    async def _answer(
        self, engine: Engine, metrics: RequestMetrics, request: HttpRequest, path: str
    ) -> Response[bytes]:
        started = time.perf_counter_ns()
        address, code = None, OK
        try:
            address = read_address(request.method, path)
            body = await self._body(engine, metrics, request, address)
            response = json_response(body)
        except InferenceError as error:
            code = code_name(error.kind)
            response = json_response(self.error_body(error), http_status(error.kind))
        verb, model = (address.verb, address.model) if address else (None, "")
        metrics.requested(model, verb, code, time.perf_counter_ns() - started)
        response.headers.update(self._headers)
        return response

    async def _body(self, engine: Engine, metrics: RequestMetrics, request: HttpRequest, address: Address) -> bytes:
        if address.verb == "status":
            return model_status(versions_for(engine.registry, address), engine.withheld)
        if address.verb == "metadata":
            return _metadata(engine, address, self._if_loading)
        caller = caller_of(request, self.name)
        body = await _plain_body(request, engine, caller, address.model)
        codec = Exchange(engine.registry, address, body, engine.limits, self._if_loading)
        try:
            answer = await engine.exchange(caller, address.model, codec.decode, codec.encode)
        except InferenceError as error:
            raise named(error, codec.inputs) from None
        metrics.ran(address.model, address.verb, codec.platform, codec.model_time)
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
    return Response(metrics.page(), media_type=PROMETHEUS)


async def _plain_body(request: HttpRequest, engine: Engine, caller: RequestInfo, model_name: str) -> bytes:
    try:
        return await body_to_infer(request, engine, caller, model_name)
    except InferenceError as error:
        if error.kind is ErrorKind.UNSUPPORTED:
            # UNSUPPORTED is 501 in this protocol, but an unknown content encoding is a client error.
            raise invalid(error.message, error.path) from None
        raise


def _metadata(engine: Engine, address: Address, if_loading: ErrorKind) -> bytes:
    registration = servable_for(engine.registry, address, if_loading)
    definitions = {name: signature.definition for name, signature in signatures(registration.ready_servable()).items()}
    source = registration.source
    return indented(
        {
            "model_spec": {"name": source.name, "signature_name": "", "version": source.version},
            "metadata": {"signature_def": {"signature_def": definitions}},
        }
    )
