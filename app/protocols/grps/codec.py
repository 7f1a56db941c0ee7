"""Messages of GRPS to the neutral exchange and back, the same over HTTP and gRPC."""

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


class _Place(msgspec.Struct, frozen=True):
    """Where an input stands in the message: itself, and its elements."""

    base: str
    elements: str


class PredictCall:
    """One request to predict, between the message that came and those that answer it.

    Args:
        registry: has the models.
        read: gives the message, and whether its tensor came as `ndarray`; called where `decode` is.
        model: the model that is meant where the message names none, as the message would name it.
        parameters: of the request, beside the message; what the message itself says comes first.
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
        self._of_tensors = False
        self._inputs: Sequence[InputTensor] = ()
        self._places: list[_Place] = []
        self._where = {name: f"query.{name}" for name in self._parameters}
        self._all = ""
        self._echoes: Mapping[str, str] = {}
        self._pieces = PieceWriter("", {})

    def decode(self) -> InferenceRequest:
        """Read the message.

        Raises:
            InferenceError: naming the field.
        """
        message, ndarray = self._read()
        name, version = addressed(self._registry, message.model or self._model)
        servable = self._registry.find(name, version).ready_servable()
        self._of_tensors = servable.description.task_type is TaskType.TENSOR
        self._kind = self._all = message.WhichOneof("data_oneof") or ""
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
        self._pieces = PieceWriter(self._kind, self._echoes)
        inputs = tuple(self._inputs)
        return InferenceRequest(
            id="", model_name=name, model_version=version, inputs=inputs, parameters=self._parameters
        )

    def encode(self, response: InferenceResponse) -> Any:
        """The message that answers, of the kind that came as far as that can hold the answer.

        Raises:
            InferenceError: UNSUPPORTED for a tensor that GRPS has no form for.
        """
        message = GrpsMessage()
        predictions = [each for output in response.outputs for each in output.predictions]
        if self._of_tensors or self._kind == "gtensors":
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

    def encode_piece(self, piece: Piece) -> Any:
        """The message of a piece of text; None where it has nothing to tell."""
        message = self._pieces.message(piece)
        return None if message is None else succeeded(message)

    def localised(self, error: InferenceError) -> InferenceError:
        """`error` with its path in the terms of the message."""
        if error.path == "inputs":
            return InferenceError(error.kind, error.message, self._all)
        found = _INPUT.match(error.path)
        if found is None:
            return error
        index, rest = int(found["index"]), found["rest"] or ""
        return InferenceError(error.kind, error.message, self._path(index, rest))

    def _path(self, index: int, rest: str) -> str:
        place = self._places[index]
        parameter = _PARAMETER.match(rest)
        if parameter is not None:
            name = parameter["name"]
            own = name in self._inputs[index].parameters
            beside = entry_path("s_s", f"{self._inputs[index].name}.parameters")
            where = f"{beside}.{name}" if own else self._where.get(name, name)
            return where + parameter["rest"]
        if place.base == place.elements:
            return place.base
        if rest.startswith("data") and not rest.startswith("datatype"):
            return place.elements + rest.removeprefix("data")
        return ".".join(each for each in (place.base, "dtype" if rest == "datatype" else rest) if each)

    def _tensors(self, messages: Sequence[Any], servable: Servable, ndarray: bool) -> Sequence[InputTensor]:
        self._all = "ndarray" if ndarray else "gtensors.tensors"
        if not len(messages):
            raise invalid("Expected at least one tensor, got none", self._all)
        specs = {spec.name: spec for spec in servable.inputs} if self._of_tensors else {}
        found: list[InputTensor] = []
        for index, each in enumerate(messages):
            path = f"gtensors.tensors[{index}]"
            spec = specs.get(each.name)
            if not each.name and len(specs) == 1:
                (spec,) = specs.values()
            try:
                found.append(read_tensor(each, spec, path))
            except InferenceError as error:
                raise (InferenceError(error.kind, error.message, "ndarray") if ndarray else error) from None
            elements = f"{path}.{dtype_of(each, path).field}"
            self._places.append(_Place("ndarray", "ndarray") if ndarray else _Place(path, elements))
        return found

    def _mapped(self, gmap: Any, servable: Servable) -> Sequence[InputTensor]:
        if self._of_tensors:
            raise invalid("Expected gtensors or ndarray: the model takes tensors, which a map has none of", "gmap")
        of_text = tuple(servable.inputs) == (TEXT_INPUT,)
        self._all = "gmap.s_s" if of_text else "gmap.s_b"
        found = read_map(gmap, servable.parameters_type.__struct_fields__ if of_text else None)
        self._parameters = {**self._parameters, **found.parameters}
        self._where |= found.places
        self._echoes = found.echoes
        self._places += [_Place(path, path) for path in found.paths]
        return found.inputs

    def _element(self, element: Element, servable: Servable) -> InputTensor:
        """One image, or the one text that a model of tensors takes."""
        self._places.append(_Place(self._kind, self._kind))
        if not self._of_tensors:
            return BytesTensor(name="image", shape=(1,), elements=[element])
        spec = servable.inputs[0] if len(servable.inputs) == 1 else None
        if spec is None or spec.datatype is not Datatype.BYTES:
            taken = ", ".join(f"{each.name!r} ({each.datatype})" for each in servable.inputs)
            raise invalid(f"Expected gtensors or ndarray: the model takes {taken}", self._kind)
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
    """The only element of an answer to text or bytes: as what was sent, text that is none as bytes."""
    if kind == "str_data":
        try:
            message.str_data = element.decode()
        except UnicodeDecodeError:
            message.bin_data = element
    else:
        message.bin_data = element


def _records(prediction: Prediction) -> str:
    return msgspec.json.encode(prediction.records()).decode()
