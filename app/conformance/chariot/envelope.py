"""Build chariot-v2-kserve requests as Chariot sends them, and read the parts of responses."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from app.conformance.chariot.image_probe import ImageProbe
from app.conformance.check import InconclusiveError, ViolationError
from app.conformance.client.probe import Exchange, InvalidJsonError, Probe
from app.conformance.quoting import quote
from app.conformance.sample_images import SAMPLE_IMAGES, SampleImage

__all__ = (
    "IMAGE_PROBE",
    "base64_of",
    "example",
    "expect_success",
    "image_input",
    "infer",
    "infer_path",
    "items_of",
    "output_parameters",
    "outputs",
)


def infer_path(probe: Probe) -> str:
    """Return the inference path, below the engine's URL."""
    model = probe.target.model
    return f"/v2/models/m-{model.lower().removeprefix('m-')}/infer" if model else "/infer"


def base64_of(image: SampleImage) -> str:
    """Return the encoded image in standard base64."""
    return base64.b64encode(image.data).decode()


def image_input(
    image: SampleImage, parameters: Mapping[str, object] | None = None, **fields: object
) -> dict[str, object]:
    """Return one element of `inputs`."""
    tensor: dict[str, object] = {"name": "input-image-0", "shape": [1], "datatype": "BYTES", "data": [base64_of(image)]}
    return {**tensor, **({"parameters": dict(parameters)} if parameters else {}), **fields}


def infer(
    probe: Probe, inputs: Sequence[object], headers: Mapping[str, str] | None = None, **fields: object
) -> Exchange:
    """Send POST with `inputs` and other fields of the body."""
    return probe.post_json(infer_path(probe), {"inputs": inputs, **fields}, headers)


def example(
    probe: Probe,
    parameters: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    **fields: object,
) -> Exchange:
    """Send POST with the first image, the needed parameters and `parameters`; `fields` go into the body."""
    request_parameters = {**IMAGE_PROBE.required_parameters(probe), **(parameters or {})}
    return infer(probe, [image_input(SAMPLE_IMAGES[0], request_parameters)], headers, **fields)


def expect_success(exchange: Exchange) -> dict[str, Any]:
    """Return the JSON object of a response with status 200.

    Raises:
        ViolationError: the status is not 200, or the body is not a JSON object.
    """
    if not exchange.ok:
        raise ViolationError(f"Expected status 200, got {exchange.status} {quote(exchange.body)}")
    try:
        return exchange.object()
    except InvalidJsonError as error:
        raise ViolationError(str(error)) from None


def outputs(exchange: Exchange) -> Sequence[dict[str, Any]]:
    """Return the outputs of a response.

    Raises:
        InconclusiveError: the response has no outputs.
    """
    try:
        raw_outputs: object = exchange.object().get("outputs") if exchange.ok else None
    except InvalidJsonError as error:
        raise InconclusiveError(str(error)) from None
    if (
        not isinstance(raw_outputs, list)
        or not raw_outputs
        or not all(isinstance(output, dict) for output in cast("list[object]", raw_outputs))
    ):
        raise InconclusiveError(f"There are no outputs in status {exchange.status} {quote(exchange.body)}")
    return cast("list[dict[str, Any]]", raw_outputs)


def output_parameters(output: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of an output; empty if it has none."""
    parameters = output.get("parameters")
    return cast("dict[str, Any]", parameters) if isinstance(parameters, dict) else {}


def items_of(output: Mapping[str, Any]) -> Sequence[object]:
    """Return the items of an output, even if they are nested wrongly.

    Raises:
        InconclusiveError: no items can be read.
    """
    data = output.get("data")
    if not isinstance(data, list):
        raise InconclusiveError(f"data is not a list: {quote(data)}")
    elements = cast("list[object]", data)
    if not elements:
        return []
    first = elements[0]
    if isinstance(first, str):
        try:
            first = msgspec.json.decode(first)
        except msgspec.DecodeError:
            raise InconclusiveError(f"data holds text that is not JSON: {quote(first)}") from None
    if isinstance(first, list):
        return cast("list[object]", first)
    return elements if isinstance(elements[0], dict) else [first]


def _send(probe: Probe, image: SampleImage, parameters: Mapping[str, object]) -> Exchange:
    return infer(probe, [image_input(image, parameters)])


def _read_items(exchange: Exchange) -> Sequence[object]:
    return items_of(outputs(exchange)[0])


IMAGE_PROBE = ImageProbe(_send, _read_items)
