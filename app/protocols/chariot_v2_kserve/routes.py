"""The routes of chariot-v2-kserve."""

from collections.abc import Sequence

from litestar import Response

from app.engine.engine import Engine
from app.protocols.chariot_paths import InferenceRoute, chariot_endpoints, resolve_model
from app.protocols.chariot_v2_kserve.codec import decode, encode
from app.protocols.chariot_v2_kserve.wire import WireRequest, WireResponse
from app.protocols.error_body import error_object
from app.protocols.protocol import Endpoint, HttpRequest, json_response
from app.protocols.request_body import read_inference_body
from app.protocols.request_info import read_request_info
from tasks.inference.error import InferenceError
from tasks.inference.request import InferenceRequest

__all__ = ("ChariotV2KServe",)


class ChariotV2KServe:
    """Chariot's recommended protocol: KServe's envelope with lists of plain objects."""

    name = "chariot-v2-kserve"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        async def infer(request: HttpRequest) -> Response[bytes]:
            info = read_request_info(request, self.name)
            name, version = resolve_model(engine, request, info)
            body = await read_inference_body(request, engine, info, name)

            def decode_body() -> InferenceRequest:
                return decode(
                    body,
                    model_name=name,
                    model_version=version,
                    request_id=info.request_id,
                    limits=engine.limits,
                )

            return json_response(await engine.handle(info, name, decode_body, encode))

        return chariot_endpoints(engine, InferenceRoute(handle=infer, body=WireRequest, answer=WireResponse))

    def error_body(self, error: InferenceError, /) -> bytes:
        return error_object(error)
