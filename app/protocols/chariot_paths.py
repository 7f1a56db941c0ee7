"""What Chariot asks of an engine whatever the protocol: where inferences are sent, and who is ready.

The platform calls ``/v2/models/m-<id>/infer/``; its own public engines serve ``/infer`` and ``/ready`` at the root.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.events import Caller
from app.protocols.protocol import Endpoint, HttpRequest, json_response
from tasks.exchange.error import InferenceError

__all__ = ("addressed", "chariot_endpoints")

_PREFIX = "m-"
_MODEL = "/v2/models/{target:str}"
_VERSION = f"{_MODEL}/versions/{{version:str}}"


def addressed(engine: Engine, request: HttpRequest, caller: Caller | None = None) -> tuple[str, str | None]:
    """The name of the model that a path means, and the version when it gives one; the bare path means the default.

    Args:
        engine: has the models.
        request: whose path.
        caller: the sender of an inference, of whose refusal observers are to be told.

    Raises:
        InferenceError: MODEL_NOT_FOUND.
    """
    target = request.path_params.get("target")
    try:
        if target is None:
            return engine.registry.default_name(), None
        return engine.registry.name_for_chariot(target.removeprefix(_PREFIX)), request.path_params.get("version")
    except InferenceError as error:
        raise (engine.refused(caller, error) if caller else error) from None


def chariot_endpoints(engine: Engine, infer: Callable[[HttpRequest], Awaitable[Response[bytes]]]) -> Sequence[Endpoint]:
    """`infer` on all of Chariot's paths, readiness of the server and of one model, and liveness."""

    async def ready(_: HttpRequest) -> Response[bytes]:
        if engine.registry.ready:
            return json_response(b'{"status":"ready"}')
        return json_response(msgspec.json.encode({"status": "not ready", "error": _reasons(engine)}), status=503)

    async def health(_: HttpRequest) -> Response[bytes]:
        return json_response(b'{"status":"alive"}')

    async def model_ready(request: HttpRequest) -> Response[bytes]:
        name, version = addressed(engine, request)
        engine.registry.find(name, version)
        return json_response(msgspec.json.encode({"name": name, "ready": True}))

    return [
        Endpoint(method="POST", path="/infer", handle=infer),
        Endpoint(method="POST", path=f"{_MODEL}/infer", handle=infer, claims=_is_chariot),
        Endpoint(method="POST", path=f"{_VERSION}/infer", handle=infer, claims=_is_chariot),
        Endpoint(method="GET", path="/ready", handle=ready),
        Endpoint(method="GET", path="/health", handle=health),
        Endpoint(method="GET", path=f"{_MODEL}/ready", handle=model_ready, claims=_is_chariot),
        Endpoint(method="GET", path=f"{_VERSION}/ready", handle=model_ready, claims=_is_chariot),
    ]


def _is_chariot(target: str) -> bool:
    return target.startswith(_PREFIX)


def _reasons(engine: Engine) -> str:
    waiting = [each for each in engine.registry.registrations if each.servable is None]
    if not waiting:
        return "The server has no models"
    return "; ".join(f"{each.source.name}/{each.source.version}: {each.reason}" for each in waiting)
