"""The routes of KServe's V1 protocol."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.registry import Registration
from app.protocols.caller import caller_of
from app.protocols.error_body import error_object
from app.protocols.kserve_v1.cloud_events import EVENT, HEADER_PREFIX
from app.protocols.kserve_v1.codec import Answer, Exchange
from app.protocols.kserve_v1.wire import WireAnswer, WireExplainedAnswer, WireModelReady, WireModels, WireRequest
from app.protocols.media_type import media_type_of
from app.protocols.protocol import INFER_FAILURES, Endpoint, HttpRequest, json_response
from app.protocols.request_body import body_to_infer
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("KServeV1",)

_MODEL = "/v1/models/{target:str}"
_MAX_SHOWN_NAME = 80
_NOT_IMPLEMENTED = 501
"""KServe's status for a model without an explainer."""


class KServeV1:
    """KServe's V1 protocol: lists of instances in, lists of predictions out, optionally as CloudEvents."""

    name = "kserve-v1"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        async def models(_: HttpRequest) -> Response[bytes]:
            names = sorted({registration.source.name for registration in engine.registry.registrations})
            return json_response(msgspec.json.encode(WireModels(names)))

        async def model_ready(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["target"]
            try:
                engine.ready(name)
            except InferenceError as error:
                raise _kserve_error(engine, error, name) from None
            return json_response(msgspec.json.encode(WireModelReady(name, ready=True)))

        async def predict(request: HttpRequest) -> Response[bytes]:
            caller = caller_of(request, self.name)
            codec = await _start(engine, request, caller)
            try:
                return _response(await engine.exchange(caller, codec.model_name, codec.decode, codec.encode))
            except InferenceError as error:
                raise codec.localised(error) from None

        async def explain(request: HttpRequest) -> Response[bytes]:
            caller = caller_of(request, self.name)
            codec = await _start(engine, request, caller, queued=False)
            try:
                answer = await _until_disconnect(
                    request,
                    engine.explain(caller, codec.model_name, codec.decode_to_explain, codec.encode_explained),
                )
            except InferenceError as error:
                refusal = codec.localised(error)
                if refusal.kind is ErrorKind.UNSUPPORTED:
                    return json_response(self.error_body(refusal), _NOT_IMPLEMENTED)
                raise refusal from None
            return _response(answer)

        return [
            Endpoint(
                method="GET",
                path="/v1/models",
                handle=models,
                summary="Names of the models",
                answer=WireModels,
                permission="infer",
            ),
            Endpoint(
                method="GET",
                path=_MODEL,
                handle=model_ready,
                summary="Whether a model is ready",
                answer=WireModelReady,
                failures=(404, 503),
                permission="infer",
            ),
            Endpoint(
                method="POST",
                path=_MODEL,
                verb="predict",
                handle=predict,
                queue=str,
                summary="Predict with a model",
                body=WireRequest,
                answer=WireAnswer,
                media_types=(EVENT, "image/*"),
                failures=INFER_FAILURES,
                permission="infer",
            ),
            Endpoint(
                method="POST",
                path=_MODEL,
                verb="explain",
                handle=explain,
                summary="Predict with a model, and explain which parts of the image led to each prediction",
                body=WireRequest,
                answer=WireExplainedAnswer,
                media_types=(EVENT, "image/*"),
                failures=(*INFER_FAILURES, _NOT_IMPLEMENTED),
                permission="infer",
            ),
        ]

    def error_body(self, error: InferenceError, /) -> bytes:
        return error_object(error)


async def _start(engine: Engine, request: HttpRequest, caller: RequestInfo, *, queued: bool = True) -> Exchange:
    """Read a request, and return its codec.

    Raises:
        InferenceError: MODEL_NOT_FOUND or MODEL_NOT_READY, or as `decompressed`. Observers are notified.
    """
    registration = _registration(engine, request.path_params["target"], caller)
    return Exchange(
        await body_to_infer(request, engine, caller, registration.source.name, queued=queued),
        media_type_of(request.headers.get("content-type", "")),
        {name: value for name, value in request.headers.items() if name.startswith(HEADER_PREFIX)},
        registration.ready_servable(),
        registration.source.name,
        caller.request_id,
        engine.limits,
    )


def _registration(engine: Engine, name: str, caller: RequestInfo) -> Registration:
    try:
        return engine.registry.find(name)
    except InferenceError as error:
        raise engine.refused(caller, _kserve_error(engine, error, name), name) from None


def _kserve_error(engine: Engine, error: InferenceError, name: str) -> InferenceError:
    """Return `error` with KServe's message for a missing or unready model, and the reason."""
    if error.kind is ErrorKind.MODEL_NOT_FOUND:
        shown = name if len(name) <= _MAX_SHOWN_NAME else f"{name[:_MAX_SHOWN_NAME]}..."
        return InferenceError(error.kind, f"Model with name {shown} does not exist.")
    latest = next(iter(engine.registry.versions(name)), None)
    reason = latest.reason if latest and not engine.withheld else error.message
    return InferenceError(error.kind, f"Model with name {name} is not ready. {reason}".strip())


async def _until_disconnect(request: HttpRequest, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Return the result of `work`. Cancel it when the client disconnects, because explanations take long.

    Raises:
        InferenceError: any error of `work`; DEADLINE_EXCEEDED when the client disconnected.
    """
    work_task, disconnect_task = asyncio.create_task(work), asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((work_task, disconnect_task), return_when=asyncio.FIRST_COMPLETED)
        if work_task.done():
            return work_task.result()
        raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, "The client disconnected before the response")
    finally:
        work_task.cancel()
        disconnect_task.cancel()


async def _wait_for_disconnect(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _response(answer: Answer) -> Response[bytes]:
    return Response(answer.content, headers=dict(answer.headers), media_type=answer.media_type)
