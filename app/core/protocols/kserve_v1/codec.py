"""Convert bodies of KServe's V1 protocol to and from the neutral request and response."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.core.engine.models.servable import Servable
from app.core.protocols.inference_call import HttpResponse
from app.core.protocols.kserve_v1.cloud_events import event_headers, is_event
from app.core.protocols.kserve_v1.instances import Instance, read_instance, takes_prompts, without_content_type
from app.core.protocols.kserve_v1.rows import Column, nested_rows, prediction_rows, read_rows
from app.core.protocols.kserve_v1.wire import WireRequest, WireResponse
from app.core.removed import removed_advice
from app.core.wire.bytes_elements import BinaryElement
from app.core.wire.error_paths import map_path
from app.core.wire.json_body import read_json, read_parameters_object
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor, InputTensor
from tasks.task import TaskType
from tasks.vision.request import IMAGE_INPUT

_JSON = frozenset(
    {
        "",
        "application/json",
        "application/ld+json",
        "application/octet-stream",
        # The default content type of curl and HTML forms.
        "application/x-www-form-urlencoded",
        "text/json",
        "text/plain",
    }
)
_IMAGE = "image/"
_encoder = msgspec.json.Encoder()


class RequestCodec(msgspec.Struct, kw_only=True, eq=False):
    """Decodes one request, and encodes its response, as an event for an event. Maps errors to the names of its fields.

    Attributes:
        media_type: the media type of `body` without parameters; empty if missing.
        headers: the request's headers, names in lower case.
        limits: limits for the JSON and the number of instances.
        is_event: whether the request is a CloudEvent; set by `decode`, as all of the following.
        instances_path: path of the list of instances.
        locations: the inputs and their paths.
        parameters: parameters of the request.
    """

    body: bytes
    media_type: str
    headers: Mapping[str, str]
    servable: Servable
    model_name: str
    request_id: str
    limits: Limits
    is_event: bool = False
    instances_path: str = ""
    locations: Sequence[Instance | Column] = ()
    parameters: Mapping[str, object] = {}

    def decode(self) -> InferenceRequest:
        wire = self._decode_wire()
        if isinstance(wire, BytesTensor):
            return self._request([wire])
        root, instances = _instances(wire)
        parameters = read_parameters_object(wire.parameters, "parameters")
        locations: Sequence[Instance | Column]
        if self.servable.description.takes == "tensor":
            locations = read_rows(instances, root, self.servable.inputs)
        else:
            parameters = without_content_type(parameters)
            name = self.servable.inputs[0].name
            prompts = takes_prompts(self.servable)
            locations = [
                read_instance(raw, f"{root}[{index}]", name, prompts=prompts) for index, raw in enumerate(instances)
            ]
        self.instances_path, self.locations, self.parameters = root, locations, parameters
        return self._request([location.tensor for location in locations])

    def encode(self, response: InferenceResponse, /) -> HttpResponse:
        """Encode the response, as an event if the request was one.

        Raise UNSUPPORTED when the model's outputs are not a list of predictions.
        """
        wire = WireResponse(predictions=self.predictions(response), parameters=self.response_parameters(response))
        return self.encode_wire(wire)

    def encode_wire(self, wire: WireResponse) -> HttpResponse:
        """Encode a response, as an event if the request was one."""
        headers = event_headers(self.model_name) if self.is_event else ()
        return HttpResponse(content=_encoder.encode(wire), headers=headers)

    def map_error_path(self, error: InferenceError) -> InferenceError:
        if not self.locations:
            return error
        return map_path(
            error,
            lambda index, subpath: self.locations[index].body_path(subpath),
            {"inputs": self.instances_path},
        )

    def predictions(self, response: InferenceResponse) -> Sequence[Any]:
        """Return a prediction for each instance: its records, or its row of the outputs."""
        if self.servable.description.task_type is TaskType.TENSOR:
            return prediction_rows(response.stack(), nested_rows, ErrorKind.UNSUPPORTED, "Use the V2 protocol")
        return [prediction.records() for prediction in response.predictions]

    def response_parameters(
        self, response: InferenceResponse
    ) -> Sequence[Mapping[str, object]] | Mapping[str, object] | msgspec.UnsetType:
        """Return the response's parameters: a list if the instances had them, an object if the request had them."""
        output_parameters = [output.parameters for output in response.outputs]
        if not any(output_parameters):
            return msgspec.UNSET
        return output_parameters[0] if self.servable.description.takes == "tensor" else output_parameters

    def _decode_wire(self) -> WireRequest | BytesTensor:
        """Return the JSON request or the image in the body."""
        self.is_event = is_event(self.headers)
        if self.media_type not in _JSON:
            return self._decode_image()
        try:
            return read_json(self.body, WireRequest, limits=self.limits)
        except InferenceError as error:
            # Use KServe's message for errors of the body as a whole.
            if error.path or error.kind is not ErrorKind.INVALID_REQUEST:
                raise
            # curl names an image a form unless it gets a header.
            is_undeclared = self.media_type != "application/json" and IMAGE_INPUT in self.servable.inputs
            advice = "; send an image with its Content-Type, such as image/jpeg" if is_undeclared else ""
            raise invalid(f"Unrecognized request format: {error.message}{advice}") from None

    def _decode_image(self) -> BytesTensor:
        accepts_images = IMAGE_INPUT in self.servable.inputs
        if not accepts_images or not self.media_type.startswith(_IMAGE):
            expected = "JSON, or an image as image/*" if accepts_images else "JSON"
            message = f"Expected {expected}, got {quote_value(self.media_type)}"
            raise invalid(removed_advice(self.media_type) or message, "Content-Type")
        if not self.body:
            raise invalid("Expected an encoded image, got nothing", "body")
        tensor = BytesTensor(name=IMAGE_INPUT.name, shape=(1,), elements=[BinaryElement(self.body)])
        self.locations = [Instance(tensor=tensor, path="body", value_path="body")]
        self.instances_path = "body"
        return tensor

    def _request(self, inputs: Sequence[InputTensor]) -> InferenceRequest:
        return InferenceRequest(
            id=self.request_id, model_name=self.model_name, inputs=tuple(inputs), parameters=self.parameters
        )


def _instances(wire: WireRequest) -> tuple[str, Sequence[msgspec.Raw]]:
    present = {name: value for name in ("instances", "inputs") if (value := getattr(wire, name)) is not msgspec.UNSET}
    if len(present) != 1:
        got = "both" if present else "neither"
        raise invalid(f'Expected either "instances" or "inputs", got {got}')
    ((name, instances),) = present.items()
    if not instances:
        raise invalid("Expected at least one instance, got an empty list", name)
    return name, instances
