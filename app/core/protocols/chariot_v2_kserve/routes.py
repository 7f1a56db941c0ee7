"""The routes of chariot-v2-kserve."""

from collections.abc import Sequence
from functools import partial

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.chariot_paths import chariot_endpoints
from app.core.protocols.chariot_v2_kserve.codec import WireRequest, WireResponse, decode, encode
from app.core.protocols.inference_call import CodecCall, RequestHead
from app.core.protocols.protocol import Endpoint, HttpProtocol


class ChariotV2KServe(HttpProtocol):
    """Chariot's recommended protocol: KServe's envelope with lists of plain objects."""

    name = "chariot-v2-kserve"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        def start(head: RequestHead, body: bytes, context: RequestContext) -> CodecCall:
            return CodecCall(
                model_name=context.model_name,
                decode=partial(
                    decode,
                    body,
                    model_name=context.model_name,
                    model_version=head.version,
                    request_id=context.request_id,
                    limits=engine.limits,
                ),
                encode=encode,
            )

        return chariot_endpoints(engine, start, body=WireRequest, answer=WireResponse)
