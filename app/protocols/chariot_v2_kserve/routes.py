"""The routes of chariot-v2-kserve."""

from collections.abc import Sequence

from litestar import Response

from app.engine.engine import Engine
from app.protocols.caller import caller_of
from app.protocols.chariot_paths import Inference, addressed, chariot_endpoints
from app.protocols.chariot_v2_kserve.codec import decode, encode
from app.protocols.chariot_v2_kserve.wire import WireRequest, WireResponse
from app.protocols.error_body import error_object
from app.protocols.protocol import Endpoint, HttpRequest, json_response
from app.protocols.request_body import body_to_infer
from tasks.exchange.error import InferenceError
from tasks.exchange.request import InferenceRequest

__all__ = ("ChariotV2KServe",)


class ChariotV2KServe:
    """Chariot's recommended protocol: KServe's envelope with lists of plain objects."""

    name = "chariot-v2-kserve"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        async def infer(request: HttpRequest) -> Response[bytes]:
            caller = caller_of(request, self.name)
            name, version = addressed(engine, request, caller)
            body = await body_to_infer(request, engine, caller, name)

            def decode_body() -> InferenceRequest:
                return decode(
                    body,
                    model_name=name,
                    model_version=version,
                    request_id=caller.request_id,
                    limits=engine.limits,
                )

            return json_response(await engine.exchange(caller, name, decode_body, encode))

        return chariot_endpoints(engine, Inference(handle=infer, body=WireRequest, answer=WireResponse))

    def error_body(self, error: InferenceError, /) -> bytes:
        return error_object(error)
