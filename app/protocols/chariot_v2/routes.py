"""The routes of chariot-v2."""

from collections.abc import Sequence

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.protocols.caller import caller_of
from app.protocols.chariot_paths import Inference, addressed, chariot_endpoints
from app.protocols.chariot_v2.codec import JSON_LINES, PARAMETERS_HEADER, decode, encode, localised
from app.protocols.chariot_v2.wire import WireRequest, WireResponse
from app.protocols.media_type import media_type_of
from app.protocols.protocol import Endpoint, HttpRequest
from app.protocols.request_body import body_to_infer
from tasks.exchange.error import InferenceError
from tasks.exchange.request import InferenceRequest

__all__ = ("ChariotV2",)


class ChariotV2:
    """Chariot's leaner protocol: one object, lines of objects, or the bare image in; only the records out."""

    name = "chariot-v2"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        async def infer(request: HttpRequest) -> Response[bytes]:
            caller = caller_of(request, self.name)
            name, version = addressed(engine, request, caller)
            body = await body_to_infer(request, engine, caller, name)
            media_type = media_type_of(request.headers.get("content-type", ""))
            parameters_header = request.headers.get(PARAMETERS_HEADER)

            def decode_body() -> InferenceRequest:
                return decode(
                    body,
                    media_type=media_type,
                    parameters_header=parameters_header,
                    model_name=name,
                    model_version=version,
                    request_id=caller.request_id,
                    limits=engine.limits,
                )

            try:
                content, content_type = await engine.exchange(caller, name, decode_body, encode)
            except InferenceError as error:
                raise localised(error, media_type) from None
            return Response(content, media_type=content_type)

        media_types = (JSON_LINES, "image/*")
        inference = Inference(handle=infer, body=WireRequest, answer=WireResponse, media_types=media_types)
        return chariot_endpoints(engine, inference)

    def error_body(self, error: InferenceError, /) -> bytes:
        # Striveworks' public engine uses `detail`; the platform's own errors use `error`.
        return msgspec.json.encode({"error": str(error), "detail": str(error)})
