"""Build chariot-v2-kserve requests as Chariot sends them, and read the parts of responses."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote as quote_path

import msgspec

from app.clients import chariot
from app.plugins.conformance.chariot.image_probe import required_parameters
from app.plugins.conformance.exchange import Exchange, InconclusiveError, ViolationError, quote
from app.plugins.conformance.probe import ImageFormat, Probe
from app.plugins.conformance.sample_images import SAMPLE_IMAGES, SampleImage
from app.plugins.conformance.tensors import is_list, is_object

PAGE = 'Chariot, "Inference Protocols"'
YOLO = "Striveworks' public engine-yolo"


def infer_path(probe: Probe) -> str:
    """Return the inference path, below the engine's URL."""
    return chariot.infer_path(quote_path(probe.target.model or "", safe=""))


def infer(
    probe: Probe, inputs: Sequence[object], headers: Mapping[str, str] | None = None, **fields: object
) -> Exchange:
    """Send POST with `inputs` and other fields of the body."""
    return probe.post_json(infer_path(probe), {"inputs": inputs, **fields}, headers)


def image_input(image: SampleImage, parameters: Mapping[str, object], **fields: object) -> dict[str, object]:
    """Return one element of `inputs`."""
    tensor = {"name": "input-image-0", "shape": [1], "datatype": "BYTES", "data": [image.data]}
    return {**tensor, **({"parameters": parameters} if parameters else {}), **fields}


def needed_input(
    probe: Probe,
    image: SampleImage = SAMPLE_IMAGES[0],
    parameters: Mapping[str, object] | None = None,
    **fields: object,
) -> dict[str, object]:
    """Return one element of `inputs`, with the parameters that the engine requires and `parameters`."""
    return image_input(image, {**required_parameters(probe), **(parameters or {})}, **fields)


def example(
    probe: Probe,
    parameters: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    **fields: object,
) -> Exchange:
    """Send POST with the first image, the needed parameters and `parameters`; `fields` go into the body."""
    return infer(probe, [needed_input(probe, parameters=parameters)], headers, **fields)


def example_output(probe: Probe, parameters: Mapping[str, object] | None = None) -> Mapping[str, Any]:
    """Return the first of the `outputs` of the response to `example`."""
    return outputs(example(probe, parameters))[0]


def outputs(exchange: Exchange) -> Sequence[dict[str, Any]]:
    """Return the outputs of a response. Raise InconclusiveError if the response has no outputs."""
    try:
        raw_outputs: object = exchange.object().get("outputs") if exchange.ok else None
    except ViolationError as error:
        raise InconclusiveError(str(error)) from None
    if not is_list(raw_outputs) or not raw_outputs or not all(is_object(output) for output in raw_outputs):
        raise InconclusiveError(f"There are no outputs in status {exchange.status} {quote(exchange.body)}")
    return raw_outputs


def items_of(output: Mapping[str, Any]) -> Sequence[object]:
    """Return the items of an output, even if they are nested wrongly.

    Raise InconclusiveError if no items can be read.
    """
    data = output.get("data")
    if not is_list(data):
        raise InconclusiveError(f"data is not a list: {quote(data)}")
    if not data:
        return []
    first: object = data[0]
    if isinstance(first, str):
        try:
            first = msgspec.json.decode(first)
        except (msgspec.DecodeError, RecursionError):
            raise InconclusiveError(f"data holds text that is not JSON: {quote(first)}") from None
    if is_list(first):
        return first
    return data if is_object(data[0]) else [first]


IMAGES = ImageFormat(
    send=lambda probe, image, parameters: infer(probe, [image_input(image, parameters)]),
    read_items=lambda exchange: items_of(outputs(exchange)[0]),
)
