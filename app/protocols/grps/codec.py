"""Convert messages of GRPS to and from the neutral request and response, for HTTP and gRPC."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from app.engine.registry import Registry
from app.engine.servable import Servable
from app.engine.streaming import Piece
from app.protocols.bytes_elements import BinaryElement, StringElement
from app.protocols.grps.address import addressed
from app.protocols.grps.maps import echo_metadata, read_map
from app.protocols.grps.messages import GrpsMessage, entry_path, succeeded
from app.protocols.grps.pieces import PieceWriter
from app.protocols.grps.tensors import dtype_of, read_tensor, write_tensor
from tasks.exchange.error import InferenceError, invalid
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse, Prediction
from tasks.exchange.tensor import BytesTensor, Datatype, Element, InputTensor
from tasks.task import TaskType
from tasks.text.request import TEXT_INPUT

__all__ = ("PredictCall",)

_INPUT = re.compile(r"^inputs\[(?P<index>\d+)\](?:\.(?P<rest>.*))?$", re.DOTALL)
_PARAMETER = re.compile(r"^parameters\.(?P<name>[^.\[]+)(?P<rest>.*)$", re.DOTALL)


class _InputPath(msgspec.Struct, frozen=True):
    """The paths of an input in the message: the input, and its elements."""

    base: str
    elements: str


class PredictCall:
    """Decodes one prediction request, and encodes the messages of its response.

    Args:
        registry: holds the models.
        read: returns the message, and whether its tensor came as `ndarray`; called by `decode`.
        model: the model to use if the message names none.
        parameters: request parameters outside the message; the message's own parameters override them.
    """

    def __init__(
        self,
        registry: Registry,
        read: Callable[[], tuple[Any, bool]],
        model: str = "",
        parameters: Mapping[str, object] | None = None,
    ) -> None:
        self._registry = registry
        self._read = read
        self._model = model
        self._parameters = parameters or {}
        self._kind = ""
        self._is_tensor_model = False
        self._inputs: Sequence[InputTensor] = ()
        self._input_paths: list[_InputPath] = []
        self._parameter_paths = {name: f"query.{name}" for name in self._parameters}
        self._inputs_path = ""
        self._echoes: Mapping[str, str] = {}
        self._chunk_writer = PieceWriter("", {})

    def decode(self) -> InferenceRequest:
        """Decode the message.

        Raises:
            InferenceError: naming the invalid field.
        """
        message, ndarray = self._read()
        name, version = addressed(self._registry, message.model or self._model)
        servable = self._registry.find(name, version).ready_servable()
        self._is_tensor_model = servable.description.task_type is TaskType.TENSOR
        self._kind = self._inputs_path = message.WhichOneof("data_oneof") or ""
        match self._kind:
            case "gtensors":
                self._inputs = self._tensors(message.gtensors.tensors, servable, ndarray)
            case "gmap":
                self._inputs = self._mapped(message.gmap, servable)
            case "str_data":
                self._inputs = [self._element(StringElement(message.str_data), servable)]
            case "bin_data":
                self._inputs = [self._element(BinaryElement(message.bin_data), servable)]
            case "ndarray":
                raise invalid("Expected gtensors: ndarray is for JSON over HTTP", "ndarray")
            case _:
                raise invalid("Expected str_data, bin_data, gtensors, ndarray or gmap, got none of them")
        self._chunk_writer = PieceWriter(self._kind, self._echoes)
        inputs = tuple(self._inputs)
        return InferenceRequest(
            id="", model_name=name, model_version=version, inputs=inputs, parameters=self._parameters
        )

    def encode(self, response: InferenceResponse) -> Any:
        """Return the response message, with the same kind of data as the request if it can hold the predictions.

        Raises:
            InferenceError: UNSUPPORTED for a tensor that GRPS cannot hold.
        """
        message = GrpsMessage()
        predictions = [prediction for output in response.outputs for prediction in output.predictions]
        if self._is_tensor_model or self._kind == "gtensors":
            self._write_tensors(message, predictions)
        elif self._kind == "gmap":
            for output in response.outputs:
                (only,) = output.predictions
                message.gmap.s_s[output.name] = _records(only)
                echo_metadata(message, output.name, output.parameters, self._echoes)
        else:
            (only,) = predictions
            message.str_data = _records(only)
        return succeeded(message)

    def encode_piece(self, chunk: Piece) -> Any:
        """Return the message for a chunk of text; None if it adds nothing."""
        message = self._chunk_writer.message(chunk)
        return None if message is None else succeeded(message)

    def localised(self, error: InferenceError) -> InferenceError:
        """Return `error` with its path in terms of the message."""
        if error.path == "inputs":
            return InferenceError(error.kind, error.message, self._inputs_path)
        inherited = _PARAMETER.match(error.path)
        if inherited is not None:
            name = inherited["name"]
            return InferenceError(error.kind, error.message, self._parameter_paths.get(name, name) + inherited["rest"])
        found = _INPUT.match(error.path)
        if found is None:
            return error
        index, rest = int(found["index"]), found["rest"] or ""
        return InferenceError(error.kind, error.message, self._path(index, rest))

    def _path(self, index: int, rest: str) -> str:
        place = self._input_paths[index]
        parameter = _PARAMETER.match(rest)
        if parameter is not None:
            name = parameter["name"]
            own = name in self._inputs[index].parameters
            beside = entry_path("s_s", f"{self._inputs[index].name}.parameters")
            where = f"{beside}.{name}" if own else self._parameter_paths.get(name, name)
            return where + parameter["rest"]
        if place.base == place.elements:
            return place.base
        if rest.startswith("data") and not rest.startswith("datatype"):
            return place.elements + rest.removeprefix("data")
        return ".".join(part for part in (place.base, "dtype" if rest == "datatype" else rest) if part)

    def _tensors(self, messages: Sequence[Any], servable: Servable, ndarray: bool) -> Sequence[InputTensor]:
        self._inputs_path = "ndarray" if ndarray else "gtensors.tensors"
        if not len(messages):
            raise invalid("Expected at least one tensor, got none", self._inputs_path)
        specs = {spec.name: spec for spec in servable.inputs} if self._is_tensor_model else {}
        found: list[InputTensor] = []
        for index, tensor in enumerate(messages):
            path = f"gtensors.tensors[{index}]"
            spec = specs.get(tensor.name)
            if not tensor.name and len(specs) == 1:
                (spec,) = specs.values()
            try:
                found.append(read_tensor(tensor, spec, path))
            except InferenceError as error:
                raise (InferenceError(error.kind, error.message, "ndarray") if ndarray else error) from None
            elements = f"{path}.{dtype_of(tensor, path).field}"
            self._input_paths.append(_InputPath("ndarray", "ndarray") if ndarray else _InputPath(path, elements))
        return found

    def _mapped(self, gmap: Any, servable: Servable) -> Sequence[InputTensor]:
        if self._is_tensor_model:
            raise invalid("Expected gtensors or ndarray: the model takes tensors, which a map cannot hold", "gmap")
        of_text = tuple(servable.inputs) == (TEXT_INPUT,)
        self._inputs_path = "gmap.s_s" if of_text else "gmap.s_b"
        found = read_map(gmap, servable.parameters_type.__struct_fields__ if of_text else None)
        self._parameters = {**self._parameters, **found.parameters}
        self._parameter_paths |= found.places
        self._echoes = found.echoes
        self._input_paths += [_InputPath(path, path) for path in found.paths]
        return found.inputs

    def _element(self, element: Element, servable: Servable) -> InputTensor:
        """Return the input for one image, or for the one text that a tensor model takes."""
        self._input_paths.append(_InputPath(self._kind, self._kind))
        if not self._is_tensor_model:
            return BytesTensor(name="image", shape=(1,), elements=[element])
        spec = servable.inputs[0] if len(servable.inputs) == 1 else None
        if spec is None or spec.datatype is not Datatype.BYTES:
            expected = ", ".join(f"{spec.name!r} ({spec.datatype})" for spec in servable.inputs)
            raise invalid(f"Expected gtensors or ndarray: the model takes {expected}", self._kind)
        return BytesTensor(name=spec.name, shape=(1,) * len(spec.shape), elements=[element])

    def _write_tensors(self, message: Any, predictions: Sequence[Prediction]) -> None:
        tensors = type(predictions[0]).stack(predictions)
        if self._kind != "gtensors" and len(tensors) == 1:
            (only,) = tensors
            if only.datatype is Datatype.BYTES and only.data.size == 1:
                return _write_element(message, only.data.item(), self._kind)
        message.gtensors.SetInParent()
        for tensor in tensors:
            write_tensor(tensor, message.gtensors.tensors.add())
        return None


def _write_element(message: Any, element: bytes, kind: str) -> None:
    """Write the single element of a response to text or bytes: as text if it was text and is UTF-8, else as bytes."""
    if kind == "str_data":
        try:
            message.str_data = element.decode()
        except UnicodeDecodeError:
            message.bin_data = element
    else:
        message.bin_data = element


def _records(prediction: Prediction) -> str:
    return msgspec.json.encode(prediction.records()).decode()
