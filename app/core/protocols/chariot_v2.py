"""The protocol chariot-v2: its routes, and the conversion of its bodies.

A body has one of three forms: one JSON object, one such object per line (``application/jsonl``), or the image itself.
The image has its parameters as a JSON object in the header ``chariot-inference-parameters``.
"""

from collections.abc import Mapping, Sequence

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.chariot_paths import chariot_endpoints
from app.core.protocols.inference_call import JSON, HttpResponse, RequestHead, media_type_of
from app.core.protocols.protocol import Endpoint, HttpProtocol
from app.core.wire.bytes_elements import BinaryElement, StringElement
from app.core.wire.error_paths import map_path, move
from app.core.wire.json_body import read_json, read_parameters_object
from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import Limits, too_large
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse, Record
from tasks.inference.tensor import BytesTensor, Element

JSON_LINES = "application/jsonl"
PARAMETERS_HEADER = "chariot-inference-parameters"
_FORM = "multipart/form-data"
_JSON_PLACES = {"data[0]": "input"}
_IMAGE_PLACES = {"data": "body", "data[0]": "body", "parameters": PARAMETERS_HEADER}
_encoder = msgspec.json.Encoder()


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One input: an encoded image in base64."""

    input: str
    parameters: dict[str, msgspec.Raw] | None = None


class WireResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The records for one input, and the metadata of the request."""

    output: Sequence[Record]
    parameters: Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET


def decode(head: RequestHead, body: bytes, context: RequestContext, limits: Limits) -> InferenceRequest:
    """Decode a request's body by its media type, which may be missing.

    Raise INVALID_REQUEST naming the field, and the object if there are several; TOO_LARGE for more JSON than `limits`
    allow.
    """
    media_type = _media_type(head)
    if media_type in (JSON, ""):
        inputs = [_json_input(body, "inputs[0]", limits)]
    elif media_type == JSON_LINES:
        if (count := body.count(b"\n")) > limits.max_entries:
            raise too_large(limits.max_entries, "lines in one body (--max-entries)", count)
        lines = [line for line in body.split(b"\n") if line.strip()]
        if not lines:
            raise invalid("Expected at least one line of JSON, got an empty body")
        inputs = [_json_input(line, f"inputs[{index}]", limits) for index, line in enumerate(lines)]
    elif media_type == _FORM:
        raise invalid("Expected the image itself, got a form: with curl, use --data-binary @FILE instead of -F", "body")
    else:
        inputs = [_raw_input(body, head.headers.get(PARAMETERS_HEADER), limits)]
    name, request_id = context.model_name, context.request_id
    return InferenceRequest(id=request_id, model_name=name, model_version=head.version, inputs=tuple(inputs))


def encode(response: InferenceResponse) -> HttpResponse:
    """Encode a response: plain JSON for a single output, JSON lines for several."""
    wire_responses = [
        WireResponse(
            output=[record for prediction in output.predictions for record in prediction.records()],
            parameters=output.parameters or msgspec.UNSET,
        )
        for output in response.outputs
    ]
    if len(wire_responses) == 1:
        return HttpResponse(content=_encoder.encode(wire_responses[0]))
    return HttpResponse(content=_encoder.encode_lines(wire_responses), media_type=JSON_LINES)


def map_error_path(head: RequestHead, error: InferenceError) -> InferenceError:
    """Return `error` with its path in this protocol's terms: ``input``, ``parameters``, and the object's number."""
    media_type = _media_type(head)
    places = _JSON_PLACES if media_type in (JSON, JSON_LINES, "") else _IMAGE_PLACES

    def input_path(index: int, subpath: str) -> str:
        field = move(subpath, places)
        return f"object {index + 1}: {field}".removesuffix(": ") if media_type == JSON_LINES else field

    return map_path(error, input_path)


def _media_type(head: RequestHead) -> str:
    return media_type_of(head.headers.get("content-type", ""))


def _json_input(text: bytes, path: str, limits: Limits) -> BytesTensor:
    wire = read_json(text, WireRequest, path, limits)
    parameters = read_parameters_object(wire.parameters, f"{path}.parameters")
    return _input(StringElement(wire.input), parameters)


def _raw_input(body: bytes, parameters_header: str | None, limits: Limits) -> BytesTensor:
    if not body:
        raise invalid("Expected an encoded image, got an empty body")
    if parameters_header is None:
        return _input(BinaryElement(body), {})
    text = parameters_header.encode("latin-1")
    raw = read_json(text, dict[str, msgspec.Raw], PARAMETERS_HEADER, limits, "header")
    return _input(BinaryElement(body), read_parameters_object(raw, PARAMETERS_HEADER))


def _input(element: Element, parameters: Mapping[str, object]) -> BytesTensor:
    return BytesTensor(name="input", shape=(1,), elements=[element], parameters=parameters)


class ChariotV2(HttpProtocol):
    """Chariot's leaner protocol: one object, lines of objects, or the bare image in; only the records out."""

    name = "chariot-v2"
    request_headers = (PARAMETERS_HEADER,)

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        return chariot_endpoints(
            engine,
            decode,
            encode,
            map_error_path=map_error_path,
            body=WireRequest,
            answer=WireResponse,
            media_types=(JSON_LINES, "image/*"),
        )

    def error_body(self, error: InferenceError, /) -> bytes:
        # Striveworks' public engine uses `detail`; the platform's own errors use `error`.
        return msgspec.json.encode({"error": str(error), "detail": str(error)})
