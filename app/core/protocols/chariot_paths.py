"""The paths that Chariot requires of an engine in every protocol: inference, readiness and liveness.

The platform calls ``/v2/models/m-<id>/infer/``. Its own public engines serve ``/infer`` and ``/ready`` at the root.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import msgspec
from litestar import Response

from app.core.engine.engine import Engine
from app.core.engine.models.registry import CHARIOT_PREFIX
from app.core.engine.request_context import RequestContext
from app.core.protocols.inference_call import CodecCall, HttpResponse, RequestHead
from app.core.protocols.protocol import (
    Endpoint,
    HttpRequest,
    ModelReady,
    infer_endpoint,
    json_response,
    probe_endpoint,
    read_endpoint,
)
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse

Decode = Callable[[RequestHead, bytes, RequestContext, Limits], InferenceRequest]

_MODEL = "/v2/models/{target:str}"
_VERSION = f"{_MODEL}/versions/{{version:str}}"
_is_chariot = methodcaller("startswith", CHARIOT_PREFIX)


def chariot_endpoints(
    engine: Engine,
    decode: Decode,
    encode: Callable[[InferenceResponse], HttpResponse],
    *,
    body: Any,
    answer: Any,
    media_types: Sequence[str] = (),
    map_error_path: Callable[[RequestHead, InferenceError], InferenceError] = lambda _, error: error,
) -> Sequence[Endpoint]:
    """Return the endpoints for readiness, liveness, and inference on all of Chariot's paths.

    The context that `decode` gets has the name of the model. `map_error_path` returns an error with its path in terms
    of the protocol. `body`, `answer` and `media_types` are fields of the inference endpoints.
    """

    async def ready(_: HttpRequest) -> Response[bytes]:
        if not engine.not_ready_reason:
            return json_response(b'{"status":"ready"}')
        return json_response(msgspec.json.encode({"status": "not ready", "error": engine.not_ready_reason}), status=503)

    def model_ready(request: HttpRequest) -> ModelReady:
        name = engine.registry.name_for_path(request.path_params["target"])
        engine.ready_model(name, request.path_params.get("version"))
        return ModelReady(name)

    infer = partial(
        infer_endpoint,
        start=lambda head, body, context: CodecCall(
            model_name=context.model_name,
            decode=partial(decode, head, body, context, engine.limits),
            encode=encode,
            map_error_path=partial(map_error_path, head),
        ),
        body=body,
        answer=answer,
        media_types=media_types,
        queue_model=lambda head: engine.registry.name_for_path(head.target),
    )
    of_id = "the model of a Chariot id, m-<id>"
    return [
        infer("/infer", "Infer with the only model, or the default model"),
        infer(f"{_MODEL}/infer", f"Infer with {of_id}", accepts_target=_is_chariot),
        infer(f"{_VERSION}/infer", f"Infer with one version of {of_id}", accepts_target=_is_chariot),
        probe_endpoint("/ready", "Whether every model is ready", handle=ready, answer=dict[str, str], failures=(503,)),
        probe_endpoint(
            "/health", "Whether the process is alive", handle=lambda _: {"status": "alive"}, answer=dict[str, str]
        ),
        *(
            read_endpoint(
                f"{path}/ready",
                "Whether a model is ready",
                handle=model_ready,
                answer=ModelReady,
                failures=(404, 503),
                accepts_target=_is_chariot,
            )
            for path in (_MODEL, _VERSION)
        ),
    ]
