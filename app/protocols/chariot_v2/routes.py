"""The routes of chariot-v2."""

from typing import Any

import msgspec
from litestar import Request, Response, Router, post

from app.engine.engine import Engine
from app.protocols.caller import caller_of
from app.protocols.chariot_paths import INFER_PATHS, addressed, health_handlers
from app.protocols.chariot_v2.codec import PARAMETERS_HEADER, decode, encode, localised
from app.protocols.error_response import error_handlers
from tasks.exchange.error import InferenceError
from tasks.exchange.request import InferenceRequest

__all__ = ("ChariotV2",)


class ChariotV2:
    """Chariot's leaner protocol: one object, lines of objects, or the bare image, and just the items back."""

    name = "chariot-v2"

    def router(self, engine: Engine, /) -> Router:
        @post([*INFER_PATHS], status_code=200)
        async def infer(request: Request[Any, Any, Any]) -> Response[bytes]:
            name, version = addressed(engine, request.path_params)
            caller = caller_of(request, self.name, name)
            body = await request.body()
            media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            parameters_header = request.headers.get(PARAMETERS_HEADER)

            def decoded() -> InferenceRequest:
                return decode(
                    body,
                    media_type=media_type,
                    parameters_header=parameters_header,
                    model_name=name,
                    model_version=version,
                    request_id=caller.request_id,
                )

            try:
                content, content_type = await engine.exchange(caller, decoded, encode)
            except InferenceError as error:
                raise localised(error, media_type) from None
            return Response(content, media_type=content_type)

        handlers = [infer, *health_handlers(engine)]
        return Router("/", route_handlers=handlers, exception_handlers=error_handlers(self.error_body))

    def error_body(self, error: InferenceError, /) -> bytes:
        # Striveworks' public engine says `detail`; the platform's own errors say `error`.
        return msgspec.json.encode({"error": str(error), "detail": str(error)})
