"""The routes of chariot-v2-kserve."""

from typing import Any

from litestar import Request, Response, Router, post

from app.engine.engine import Engine
from app.protocols.caller import caller_of
from app.protocols.chariot_paths import INFER_PATHS, addressed, health_handlers
from app.protocols.chariot_v2_kserve.codec import decode, encode
from app.protocols.error_response import error_handlers, error_object
from tasks.exchange.error import InferenceError
from tasks.exchange.request import InferenceRequest

__all__ = ("ChariotV2KServe",)


class ChariotV2KServe:
    """Chariot's recommended protocol: KServe's envelope around lists of plain objects."""

    name = "chariot-v2-kserve"

    def router(self, engine: Engine, /) -> Router:
        @post([*INFER_PATHS], status_code=200)
        async def infer(request: Request[Any, Any, Any]) -> Response[bytes]:
            name, version = addressed(engine, request.path_params)
            caller = caller_of(request, self.name, name)
            body = await request.body()

            def decoded() -> InferenceRequest:
                return decode(body, model_name=name, model_version=version, request_id=caller.request_id)

            return Response(await engine.exchange(caller, decoded, encode), media_type="application/json")

        handlers = [infer, *health_handlers(engine)]
        return Router("/", route_handlers=handlers, exception_handlers=error_handlers(self.error_body))

    def error_body(self, error: InferenceError, /) -> bytes:
        return error_object(error)
