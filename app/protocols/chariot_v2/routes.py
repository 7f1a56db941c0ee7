"""The routes of chariot-v2."""

from collections.abc import Sequence

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.protocols.chariot_paths import InferenceRoute, chariot_endpoints, resolve_model
from app.protocols.chariot_v2.codec import JSON_LINES, PARAMETERS_HEADER, decode, encode, map_error_path
from app.protocols.chariot_v2.wire import WireRequest, WireResponse
from app.protocols.media_type import media_type_of
from app.protocols.protocol import Endpoint, HttpRequest
from app.protocols.request_body import read_inference_body
from app.protocols.request_info import read_request_info
from tasks.inference.error import InferenceError
from tasks.inference.request import InferenceRequest

__all__ = ("ChariotV2",)


class ChariotV2:
    """Chariot's leaner protocol: one object, lines of objects, or the bare image in; only the records out."""

    name = "chariot-v2"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        async def infer(request: HttpRequest) -> Response[bytes]:
            info = read_request_info(request, self.name)
            name, version = resolve_model(engine, request, info)
            body = await read_inference_body(request, engine, info, name)
            media_type = media_type_of(request.headers.get("content-type", ""))
            parameters_header = request.headers.get(PARAMETERS_HEADER)

            def decode_body() -> InferenceRequest:
                return decode(
                    body,
                    media_type=media_type,
                    parameters_header=parameters_header,
                    model_name=name,
                    model_version=version,
                    request_id=info.request_id,
                    limits=engine.limits,
                )

            try:
                content, content_type = await engine.handle(info, name, decode_body, encode)
            except InferenceError as error:
                raise map_error_path(error, media_type) from None
            return Response(content, media_type=content_type)

        media_types = (JSON_LINES, "image/*")
        inference = InferenceRoute(handle=infer, body=WireRequest, answer=WireResponse, media_types=media_types)
        return chariot_endpoints(engine, inference)

    def error_body(self, error: InferenceError, /) -> bytes:
        # Striveworks' public engine uses `detail`; the platform's own errors use `error`.
        return msgspec.json.encode({"error": str(error), "detail": str(error)})
