"""What TensorFlow Serving's REST API answers, to every method and path of its port."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from litestar import Response
from prometheus_client import CONTENT_TYPE_LATEST

from app.engine.engine import Engine
from app.engine.events import Caller
from app.protocols.caller import caller_of
from app.protocols.permission import Permission
from app.protocols.protocol import INFER_FAILURES, Endpoint, HttpRequest, json_response
from app.protocols.request_body import body_to_infer
from app.protocols.tensorflow_serving.exchange import Exchange
from app.protocols.tensorflow_serving.inputs import named
from app.protocols.tensorflow_serving.lookup import servable_for, versions_for
from app.protocols.tensorflow_serving.metrics import RequestMetrics
from app.protocols.tensorflow_serving.paths import METRICS_PATH, Address, is_of_the_api, read_address
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
    """TensorFlow Serving's REST API, for a port of its own.

    Args:
        cors: whether answers say that pages of any origin may read them.
    """

    name = "tensorflow-serving"
    title = "TensorFlow Serving"

    def __init__(self, *, cors: bool = False) -> None:
        self._headers = _CORS_HEADERS if cors else {}

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        answer = self.answer(engine)
        found: list[Endpoint] = []
        for which, whose in (("", ""), ("/versions/{version:int}", "version "), ("/labels/{label:str}", "label ")):
            path = f"{_MODEL}{which}"
            found += [
                Endpoint(
                    method="GET",
                    path=path,
                    handle=answer,
                    summary=f"The state of a model's {whose or 'versions'}".strip(),
                    answer=WireModelStatus,
                    failures=(400, 404),
                ),
                Endpoint(
                    method="GET",
                    path=f"{path}/metadata",
                    handle=answer,
                    summary="The signatures of a model",
                    answer=WireModelMetadata,
                    failures=(400, 404),
                ),
            ]
            for verb, body, kind in (
                ("predict", WirePredict, WirePredictions),
                ("classify", WireExamples, WireResults),
                ("regress", WireExamples, WireResults),
            ):
                found.append(
                    Endpoint(
                        method="POST",
                        path=path,
                        verb=verb,
                        handle=answer,
                        summary=f"Ask a model to {verb}",
                        body=body,
                        answer=kind,
                        failures=_FAILURES,
                    )
                )
        return found

    def error_body(self, error: InferenceError, /) -> bytes:
        return document_text("error", string_text(str(error)))

    def permission(self, request: HttpRequest, /) -> Permission:
        if _path_of(request).partition("?")[0] == METRICS_PATH:
            # Whatever the method: all of them are answered with the metrics.
            return "read"
        # Browsers ask for the methods before they send a key.
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
                # The real server asks for no more of an origin than that it looks like one.
                origin = request.headers.get("origin", "")
                allowed = "http://" in origin or "https://" in origin
                return Response(b"", status_code=200 if allowed else 400, headers=self._headers)
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
            return _metadata(engine, address)
        caller = caller_of(request, self.name)
        body = await _plain_body(request, engine, caller, address.model)
        exchange = Exchange(engine.registry, address, body, engine.limits)
        try:
            answer = await engine.exchange(caller, address.model, exchange.decode, exchange.encode)
        except InferenceError as error:
            raise named(error, exchange.inputs) from None
        metrics.ran(address.model, address.verb, exchange.platform, exchange.model_time)
        return answer


def _path_of(request: HttpRequest) -> str:
    """The path as it was sent, percent-encoded and with its query, which the real server does not take off."""
    path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
    query = request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _metrics_page(metrics: RequestMetrics, path: str) -> Response[bytes]:
    if path != METRICS_PATH:
        message = f"Unexpected path: {path}. Should be {METRICS_PATH}"
        return Response(message.encode(), status_code=400, media_type="text/plain")
    return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)


async def _plain_body(request: HttpRequest, engine: Engine, caller: Caller, model_name: str) -> bytes:
    try:
        return await body_to_infer(request, engine, caller, model_name)
    except InferenceError as error:
        if error.kind is ErrorKind.UNSUPPORTED:
            # UNSUPPORTED is a 501 here, but an encoding that is not known is the sender's mistake.
            raise invalid(error.message, error.path) from None
        raise


def _metadata(engine: Engine, address: Address) -> bytes:
    registration = servable_for(engine.registry, address)
    definitions = {name: each.definition for name, each in signatures(registration.ready_servable()).items()}
    source = registration.source
    return indented(
        {
            "model_spec": {"name": source.name, "signature_name": "", "version": source.version},
            "metadata": {"signature_def": {"signature_def": definitions}},
        }
    )
