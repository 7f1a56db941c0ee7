"""Bodies of KServe's V1 protocol to the neutral exchange and back."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.engine.servable import Servable
from app.protocols.bytes_elements import BinaryElement
from app.protocols.input_names import takes_prompts
from app.protocols.json_body import read_json
from app.protocols.json_parameters import read_parameters_object
from app.protocols.kserve_v1.cloud_events import (
    EVENT,
    EventMode,
    answer_event,
    check_headers,
    looks_like_event,
    read_event,
)
from app.protocols.kserve_v1.explanations import SaliencyFormat, saliency_format, wire_explanations
from app.protocols.kserve_v1.instances import Instance, read_instance
from app.protocols.kserve_v1.rows import Column, prediction_rows, read_rows
from app.protocols.kserve_v1.wire import WireAnswer, WireEvent, WireExplainedAnswer, WireRequest
from app.protocols.media_type import media_type_of
from tasks.exchange.error import ErrorKind, InferenceError, brief, invalid
from tasks.exchange.limits import Limits, beyond
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.exchange.tensor import BytesTensor, InputTensor
from tasks.explanation.explanation import Explanation
from tasks.task import TaskType
from tasks.vision.request import IMAGE_INPUT

__all__ = ("Answer", "Exchange")

_JSON = frozenset(
    {
        "",
        "application/json",
        "application/ld+json",
        "application/octet-stream",
        # What curl and browsers say of a body when they are told nothing.
        "application/x-www-form-urlencoded",
        "text/json",
        "text/plain",
    }
)
_IMAGE = "image/"
_NEUTRAL_INPUT = re.compile(r"^inputs\[(?P<index>\d+)\]\.?(?P<rest>.*)$", re.DOTALL)
_encoder = msgspec.json.Encoder()


class Answer(msgspec.Struct, frozen=True):
    """A response as it goes over the wire."""

    content: bytes
    headers: Mapping[str, str]
    media_type: str


class Exchange:
    """One request, and its answer in the same mode. Reading it also tells the names of its fields, for errors.

    Args:
        body: of the request.
        media_type: of `body`, without parameters; empty for none.
        event_headers: the request's headers that begin with ``ce-``, their names in lower case.
        servable: the model asked.
        model_name: its name.
        request_id: the request's.
        limits: how much JSON, and how many instances, it may have.
    """

    def __init__(
        self,
        body: bytes,
        media_type: str,
        event_headers: Mapping[str, str],
        servable: Servable,
        model_name: str,
        request_id: str,
        limits: Limits | None = None,
    ) -> None:
        self._body = body
        self._media_type = media_type
        self._event_headers = event_headers
        self._servable = servable
        self.model_name = model_name
        self._request_id = request_id
        self._limits = limits
        self._mode = EventMode.NONE
        self._root = ""
        self._prefix = ""
        self._places: Sequence[Instance | Column] = ()
        self._parameters: Mapping[str, object] = {}
        self._format = SaliencyFormat.PNG

    @property
    def _tensors(self) -> bool:
        return self._servable.description.task_type is TaskType.TENSOR

    def decode(self) -> InferenceRequest:
        """Read the body.

        Raises:
            InferenceError: INVALID_REQUEST naming the field.
        """
        wire = self._opened()
        if isinstance(wire, BytesTensor):
            return self._request([wire])
        root, instances = _instances(wire, self._prefix)
        parameters = read_parameters_object(wire.parameters, f"{self._prefix}parameters")
        places: Sequence[Instance | Column]
        if self._tensors:
            places = read_rows(instances, root, self._servable.inputs)
        else:
            self._check_count(len(instances), root)
            name = self._servable.inputs[0].name
            prompts = takes_prompts(self._servable)
            places = [
                read_instance(raw, f"{root}[{index}]", name, prompts=prompts) for index, raw in enumerate(instances)
            ]
        self._root, self._places, self._parameters = root, places, parameters
        return self._request([place.tensor for place in places])

    def decode_to_explain(self) -> InferenceRequest:
        """Read the body of a request for explanations.

        Raises:
            InferenceError: INVALID_REQUEST naming the field.
        """
        request = self.decode()
        self._format = saliency_format(self._parameters)
        return request

    def encode(self, response: InferenceResponse) -> Answer:
        """Write the answer.

        Raises:
            InferenceError: UNSUPPORTED for the outputs of a model that are no list of predictions.
        """
        return self._sealed(WireAnswer(predictions=self._predictions(response), parameters=self._metadata(response)))

    def encode_explained(
        self, response: InferenceResponse, explanations: Sequence[Sequence[Sequence[Explanation]]]
    ) -> Answer:
        """Write the answer to a request for explanations, which are parallel to the outputs and their images.

        Raises:
            InferenceError: TOO_LARGE for more numbers than fit an answer.
        """
        predictions = self._predictions(response)
        return self._sealed(
            WireExplainedAnswer(
                predictions=predictions,
                parameters=self._metadata(response),
                explanations=wire_explanations(predictions, explanations, self._format),
            )
        )

    def localised(self, error: InferenceError) -> InferenceError:
        """`error` of what came after `decode`, with its path in the terms of the body."""
        if not self._places:
            return error
        neutral = _NEUTRAL_INPUT.match(error.path)
        if neutral is not None:
            place, rest = self._places[int(neutral["index"])], neutral["rest"]
            parameters = f"{self._prefix}parameters"
            path = place.field(rest, parameters) if isinstance(place, Instance) else place.field(rest)
        elif error.path == "inputs":
            path = self._root
        else:
            path = self._prefix + error.path if error.path else ""
        return InferenceError(error.kind, error.message, path)

    def _predictions(self, response: InferenceResponse) -> Sequence[Any]:
        """One for each instance: its records, or its row of the outputs."""
        found = [prediction for output in response.outputs for prediction in output.predictions]
        if self._tensors:
            return prediction_rows(type(found[0]).stack(found))
        return [prediction.records() for prediction in found]

    def _metadata(
        self, response: InferenceResponse
    ) -> Sequence[Mapping[str, object]] | Mapping[str, object] | msgspec.UnsetType:
        """What goes back of the parameters: where instances had them a list, where the request had them an object."""
        returned = [output.parameters for output in response.outputs]
        if not any(returned):
            return msgspec.UNSET
        return returned[0] if self._tensors else returned

    def _sealed(self, wire: WireAnswer) -> Answer:
        """`wire` as it goes over the wire, in an event where the request came in one."""
        return Answer(*answer_event(self._mode, self.model_name, _encoder.encode(wire)))

    def _opened(self) -> WireRequest | BytesTensor:
        """The JSON, or the image, in the body or in the event that it holds."""
        if self._media_type == EVENT:
            return self._event(self._read_body(self._body, WireEvent))
        self._mode = check_headers(self._event_headers)
        if self._media_type not in _JSON:
            return self._image(self._body, self._media_type, "")
        wire = self._read_body(self._body, WireEvent)
        return self._event(wire) if self._mode is EventMode.NONE and looks_like_event(wire) else wire

    def _read_body(self, body: bytes | msgspec.Raw, kind: type[Any], path: str = "") -> Any:
        try:
            return read_json(body, kind, path, self._limits)
        except InferenceError as error:
            # KServe's words, for what is wrong with the body as a whole.
            if error.path or error.kind is not ErrorKind.INVALID_REQUEST:
                raise
            raise invalid(f"Unrecognized request format: {error.message}") from None

    def _check_count(self, count: int, root: str) -> None:
        """Refuse more instances than a request may have before each of them is read."""
        if self._limits is not None and count > self._limits.max_inputs:
            raise beyond(self._limits.max_inputs, "images or texts in one request", count, root)

    def _event(self, event: WireEvent) -> WireRequest | BytesTensor:
        self._mode = EventMode.STRUCTURED
        data = read_event(event)
        self._prefix = f"{data.path}."
        media_type = media_type_of(data.media_type)
        if media_type in _JSON:
            return self._read_body(data.content, WireRequest, data.path)
        return self._image(data.content, media_type, data.path)

    def _image(self, content: bytes | msgspec.Raw, media_type: str, path: str) -> BytesTensor:
        images = IMAGE_INPUT in self._servable.inputs
        if not images or not media_type.startswith(_IMAGE):
            wanted = "JSON, or an image as image/*" if images else "JSON"
            raise invalid(f"Expected {wanted}, got {brief(media_type)}", "datacontenttype" if path else "Content-Type")
        if isinstance(content, msgspec.Raw):
            raise invalid("Expected an image in data_base64, got JSON", path)
        if not content:
            raise invalid("Expected an encoded image, got nothing", path)
        path = path or "body"
        tensor = BytesTensor(name=IMAGE_INPUT.name, shape=(1,), elements=[BinaryElement(content)])
        self._places = [Instance(tensor=tensor, path=path, datum=path, prompts="", own=frozenset())]
        self._root = path
        return tensor

    def _request(self, inputs: Sequence[InputTensor]) -> InferenceRequest:
        return InferenceRequest(
            id=self._request_id, model_name=self.model_name, inputs=tuple(inputs), parameters=self._parameters
        )


def _instances(wire: WireRequest, prefix: str) -> tuple[str, Sequence[msgspec.Raw]]:
    given = {name: value for name in ("instances", "inputs") if (value := getattr(wire, name)) is not msgspec.UNSET}
    if len(given) != 1:
        got = "both" if given else "neither"
        raise invalid(f'Expected either "instances" or "inputs", got {got}', prefix.removesuffix("."))
    ((name, instances),) = given.items()
    if not instances:
        raise invalid("Expected at least one instance, got an empty list", prefix + name)
    return prefix + name, instances
