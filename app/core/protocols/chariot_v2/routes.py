"""The routes of chariot-v2."""

from collections.abc import Sequence
from functools import partial

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.chariot_paths import chariot_endpoints
from app.core.protocols.chariot_v2.codec import (
    JSON_LINES,
    PARAMETERS_HEADER,
    WireRequest,
    WireResponse,
    decode,
    encode,
    map_error_path,
)
from app.core.protocols.inference_call import CodecCall, RequestHead, media_type_of
from app.core.protocols.protocol import Endpoint, HttpProtocol
from tasks.inference.error import InferenceError


class ChariotV2(HttpProtocol):
    """Chariot's leaner protocol: one object, lines of objects, or the bare image in; only the records out."""

    name = "chariot-v2"
    request_headers = (PARAMETERS_HEADER,)

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        def start(head: RequestHead, body: bytes, context: RequestContext) -> CodecCall:
            media_type = media_type_of(head.headers.get("content-type", ""))
            return CodecCall(
                model_name=context.model_name,
                decode=partial(
                    decode,
                    body,
                    media_type=media_type,
                    parameters_header=head.headers.get(PARAMETERS_HEADER),
                    model_name=context.model_name,
                    model_version=head.version,
                    request_id=context.request_id,
                    limits=engine.limits,
                ),
                encode=encode,
                map_error_path=partial(map_error_path, media_type=media_type),
            )

        media_types = (JSON_LINES, "image/*")
        return chariot_endpoints(engine, start, body=WireRequest, answer=WireResponse, media_types=media_types)

    def error_body(self, error: InferenceError, /) -> bytes:
        # Striveworks' public engine uses `detail`; the platform's own errors use `error`.
        return msgspec.json.encode({"error": str(error), "detail": str(error)})
