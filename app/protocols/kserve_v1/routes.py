"""What KServe's V1 protocol serves."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.events import Caller
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
_LONGEST_NAME = 80
_NOT_IMPLEMENTED = 501
"""KServe's answer for a model that has no explainer."""


class KServeV1:
    """KServe's V1: lists of instances in, lists of predictions out, in a CloudEvent or not."""

    name = "kserve-v1"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        async def models(_: HttpRequest) -> Response[bytes]:
            names = sorted({each.source.name for each in engine.registry.registrations})
            return json_response(msgspec.json.encode(WireModels(names)))

        async def model_ready(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["target"]
            try:
                engine.ready(name)
            except InferenceError as error:
                raise _in_words_of_kserve(engine, error, name) from None
            return json_response(msgspec.json.encode(WireModelReady(name, ready=True)))

        async def predict(request: HttpRequest) -> Response[bytes]:
            caller = caller_of(request, self.name)
            exchange = await _begun(engine, request, caller)
            try:
                return _response(await engine.exchange(caller, exchange.model_name, exchange.decode, exchange.encode))
            except InferenceError as error:
                raise exchange.localised(error) from None

        async def explain(request: HttpRequest) -> Response[bytes]:
            caller = caller_of(request, self.name)
            exchange = await _begun(engine, request, caller)
            try:
                answer = await _while_asked(
                    request,
                    engine.explain(caller, exchange.model_name, exchange.decode_to_explain, exchange.encode_explained),
                )
            except InferenceError as error:
                refusal = exchange.localised(error)
                if refusal.kind is ErrorKind.UNSUPPORTED:
                    return json_response(self.error_body(refusal), _NOT_IMPLEMENTED)
                raise refusal from None
            return _response(answer)

        return [
            Endpoint(method="GET", path="/v1/models", handle=models, summary="Names of the models", answer=WireModels),
            Endpoint(
                method="GET",
                path=_MODEL,
                handle=model_ready,
                summary="Whether a model can answer",
                answer=WireModelReady,
                failures=(404, 503),
            ),
            Endpoint(
                method="POST",
                path=_MODEL,
                verb="predict",
                handle=predict,
                summary="Predict with a model",
                body=WireRequest,
                answer=WireAnswer,
                media_types=(EVENT, "image/*"),
                failures=INFER_FAILURES,
            ),
            Endpoint(
                method="POST",
                path=_MODEL,
                verb="explain",
                handle=explain,
                summary="Predict with a model, and say which parts of the image its predictions rest on",
                body=WireRequest,
                answer=WireExplainedAnswer,
                media_types=(EVENT, "image/*"),
                failures=(*INFER_FAILURES, _NOT_IMPLEMENTED),
            ),
        ]

    def error_body(self, error: InferenceError, /) -> bytes:
        return error_object(error)


async def _begun(engine: Engine, request: HttpRequest, caller: Caller) -> Exchange:
    """The exchange that a request begins.

    Raises:
        InferenceError: MODEL_NOT_FOUND or MODEL_NOT_READY, or as `decompressed`; of either, observers were told.
    """
    registration = _addressed(engine, request.path_params["target"], caller)
    return Exchange(
        await body_to_infer(request, engine, caller, registration.source.name),
        media_type_of(request.headers.get("content-type", "")),
        {name: value for name, value in request.headers.items() if name.startswith(HEADER_PREFIX)},
        registration.ready_servable(),
        registration.source.name,
        caller.request_id,
        engine.limits,
    )


def _addressed(engine: Engine, name: str, caller: Caller) -> Registration:
    try:
        return engine.registry.find(name)
    except InferenceError as error:
        raise engine.refused(caller, _in_words_of_kserve(engine, error, name), name) from None


def _in_words_of_kserve(engine: Engine, error: InferenceError, name: str) -> InferenceError:
    """`error` of a model that is not there or not ready, as KServe says it, with the reason."""
    if error.kind is ErrorKind.MODEL_NOT_FOUND:
        shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
        return InferenceError(error.kind, f"Model with name {shown} does not exist.")
    latest = next(iter(engine.registry.versions(name)), None)
    reason = latest.reason if latest and not engine.withheld else error.message
    return InferenceError(error.kind, f"Model with name {name} is not ready. {reason}".strip())


async def _while_asked(request: HttpRequest, work: Coroutine[Any, Any, Answer]) -> Answer:
    """What `work` gives. It is cancelled when the sender leaves, because it takes long and nobody would read it.

    Raises:
        InferenceError: whatever `work` raises; DEADLINE_EXCEEDED, which nobody reads either, when the sender left.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(_departure(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, "The sender left before the answer")
    finally:
        working.cancel()
        leaving.cancel()


async def _departure(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _response(answer: Answer) -> Response[bytes]:
    return Response(answer.content, headers=dict(answer.headers), media_type=answer.media_type)
