"""Convert messages of GRPS to and from the neutral request and response, for HTTP and gRPC."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.error_text import list_choices
from app.core.engine.models.registry import Registry
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.engine.streams.text_stream import Chunk
from app.core.wire.bytes_elements import BinaryElement, StringElement
from app.core.wire.error_paths import map_path, move
from app.plugins.grps.chunks import ChunkWriter
from app.plugins.grps.gmap import echo_metadata, read_map, read_scalars, write_scalars
from app.plugins.grps.messages import GrpsMessage, entry_path, with_success_status
from app.plugins.grps.tensors import ELEMENTS, datatype_of, read_tensor, write_tensor
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse, Prediction
from tasks.inference.tensor import BytesTensor, Datatype, Element, InputTensor, Tensor
from tasks.task import TaskType
from tasks.text_generation import TEXT_INPUT

_NO_DEFAULT = 'Expected the name of a model: none is set as default with "default": true in its model-settings.json'


class GrpsCodec(msgspec.Struct, eq=False):
    """Decodes one prediction request, and encodes the messages of its response.

    Attributes:
        registry: holds the models.
        read_message: returns the message, and whether its tensor came as `ndarray`; called by `decode`.
        model: the model to use if the message names none.
        parameters: request parameters outside the message; the message's own parameters override them.
    """

    registry: Registry
    read_message: Callable[[], tuple[Any, bool]]
    model: str = ""
    parameters: Mapping[str, object] = {}
    _data_kind: str = ""
    _takes_tensors: bool = False
    _returns_tensors: bool = False
    _inputs: Sequence[InputTensor] = ()
    # The path of each input in the message, and of its elements.
    _input_paths: list[tuple[str, str]] = []
    _parameter_paths: Mapping[str, str] = {}
    _inputs_path: str = ""
    _echoes: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        self._parameter_paths = {name: f"query.{name}" for name in self.parameters}

    def decode(self) -> InferenceRequest:
        message, is_ndarray = self.read_message()
        name, version = resolve_model(self.registry, message.model or self.model)
        servable = self.registry.find(name, version).ready_servable()
        self._takes_tensors = servable.description.takes == "tensor"
        self._returns_tensors = servable.description.task_type is TaskType.TENSOR
        self._data_kind = self._inputs_path = message.WhichOneof("data_oneof") or ""
        match self._data_kind:
            case "gtensors":
                self._inputs = self._tensors(message.gtensors.tensors, servable, is_ndarray)
            case "gmap":
                self._inputs = self._read_map_inputs(message.gmap, servable)
            case "str_data":
                self._inputs = [self._element(StringElement(message.str_data), servable)]
            case "bin_data":
                self._inputs = [self._element(BinaryElement(message.bin_data), servable)]
            case "ndarray":
                raise invalid("Expected gtensors: ndarray is for JSON over HTTP", "ndarray")
            case _:
                raise invalid("Expected str_data, bin_data, gtensors, ndarray or gmap, got none of them")
        inputs = tuple(self._inputs)
        return InferenceRequest(
            id="", model_name=name, model_version=version, inputs=inputs, parameters=self.parameters
        )

    def encode(self, response: InferenceResponse) -> Any:
        """Return the response message, with the same kind of data as the request if it can hold the predictions.

        Raise UNSUPPORTED for a tensor that GRPS cannot hold.
        """
        message = GrpsMessage()
        if self._returns_tensors or self._data_kind == "gtensors":
            self._write_tensors(message, response.stack())
        elif self._data_kind == "gmap":
            for output in response.outputs:
                (single,) = output.predictions
                message.gmap.s_s[output.name] = _records(single)
                echo_metadata(message, output.name, output.parameters, self._echoes)
        else:
            (single,) = response.predictions
            message.str_data = _records(single)
        return with_success_status(message)

    def stream(
        self, engine: Engine, context: RequestContext, model: str, serialize: Callable[[Any], bytes]
    ) -> AsyncGenerator[bytes]:
        """Return the messages of a streamed response: the chunks of a text, or the response."""
        writer: ChunkWriter | None = None

        def encode_chunk(chunk: Chunk) -> bytes | None:
            nonlocal writer
            # The request is decoded before the first chunk.
            writer = writer or ChunkWriter(self._data_kind, self._echoes)
            message = writer.message(chunk)
            return None if message is None else serialize(with_success_status(message))

        return engine.stream_outputs(
            context, model, self.decode, lambda response: serialize(self.encode(response)), encode_chunk
        )

    def map_error_path(self, error: InferenceError) -> InferenceError:
        shared = {f"parameters.{name}": path for name, path in self._parameter_paths.items()} | {"parameters": ""}

        def input_path(index: int, subpath: str) -> str:
            base, elements = self._input_paths[index]
            if base == elements and not subpath.startswith("parameters."):
                return base
            own_path = entry_path("s_s", f"{self._inputs[index].name}.parameters")
            own = {f"parameters.{name}": f"{own_path}.{name}" for name in self._inputs[index].parameters}
            return move(subpath, {"": base, "data": elements, "datatype": f"{base}.dtype", **shared, **own})

        return map_path(error, input_path, {"inputs": self._inputs_path, **shared})

    def _tensors(self, messages: Sequence[Any], servable: Servable, is_ndarray: bool) -> Sequence[InputTensor]:
        self._inputs_path = "ndarray" if is_ndarray else "gtensors.tensors"
        if not len(messages):
            raise invalid("Expected at least one tensor, got none", self._inputs_path)
        specs = {spec.name: spec for spec in servable.inputs} if self._takes_tensors else {}
        inputs: list[InputTensor] = []
        for index, tensor in enumerate(messages):
            path = f"gtensors.tensors[{index}]"
            spec = specs.get(tensor.name)
            if not tensor.name and len(specs) == 1:
                (spec,) = specs.values()
            try:
                inputs.append(read_tensor(tensor, spec, path))
            except InferenceError as error:
                raise (InferenceError(error.kind, error.message, "ndarray") if is_ndarray else error) from None
            elements = f"{path}.{ELEMENTS.names[datatype_of(tensor, path)]}"
            self._input_paths.append(("ndarray", "ndarray") if is_ndarray else (path, elements))
        return inputs

    def _read_map_inputs(self, gmap: Any, servable: Servable) -> Sequence[InputTensor]:
        if self._takes_tensors:
            self._inputs_path = "gmap"
            inputs, paths = read_scalars(gmap, servable.inputs)
            self._input_paths += [(path, path) for path in paths]
            return inputs
        is_text_task = tuple(servable.inputs) == (TEXT_INPUT,)
        self._inputs_path = "gmap.s_s" if is_text_task else "gmap.s_b"
        content = read_map(gmap, servable.parameter_names if is_text_task else None)
        self.parameters = {**self.parameters, **content.parameters}
        self._parameter_paths = {**self._parameter_paths, **content.parameter_paths}
        self._echoes = content.echoes
        self._input_paths += [(path, path) for path in content.paths]
        return content.inputs

    def _element(self, element: Element, servable: Servable) -> InputTensor:
        """Return the input for one image, or for the only BYTES input of a tensor model."""
        self._input_paths.append((self._data_kind, self._data_kind))
        if not self._takes_tensors:
            return BytesTensor(name="image", shape=(1,), elements=[element])
        spec = servable.inputs[0] if len(servable.inputs) == 1 else None
        if spec is None or spec.datatype is not Datatype.BYTES:
            expected = ", ".join(f"{spec.name!r} ({spec.datatype})" for spec in servable.inputs)
            raise invalid(f"Expected gtensors or ndarray: the model takes {expected}", self._data_kind)
        return BytesTensor(name=spec.name, shape=(1,) * len(spec.shape), elements=[element])

    def _write_tensors(self, message: Any, tensors: Sequence[Tensor]) -> None:
        """Write tensors as the request's kind of data if it can hold them, else as `gtensors`."""
        if self._takes_tensors and self._data_kind == "gmap" and all(tensor.data.size == 1 for tensor in tensors):
            write_scalars(message, tensors)
            return
        is_element = len(tensors) == 1 and tensors[0].datatype is Datatype.BYTES and tensors[0].data.size == 1
        if self._data_kind == "gtensors" or not is_element:
            message.gtensors.SetInParent()
            for tensor in tensors:
                write_tensor(tensor, message.gtensors.tensors.add())
            return
        element: bytes = tensors[0].data.item()
        if self._data_kind == "str_data":
            with suppress(UnicodeDecodeError):
                message.str_data = element.decode()
                return
        message.bin_data = element


def queue_of(registry: Registry, model: str) -> str:
    """Return the name of the model in whose queue a request for `model` waits; "" if `decode` will reject it."""
    with suppress(InferenceError):
        return resolve_model(registry, model)[0]
    return ""


def resolve_model(registry: Registry, model: str) -> tuple[str, str | None]:
    """Return the name and version that ``name-version`` means; the default model if it is empty.

    A full match of a model's name comes first, because names may contain dashes. Otherwise, the longest known name
    before a dash separates name and version. The version is None if none is given. Raise MODEL_NOT_FOUND.
    """
    if registry.owner(model):
        return model, None
    if model:
        kind, message = ErrorKind.MODEL_NOT_FOUND, f"Model {quote_value(model)} is not known"
    else:
        try:
            return registry.default_name(), None
        except InferenceError as error:
            kind, message = error.kind, _NO_DEFAULT
    sources = [registration.source for registration in registry.registrations]
    name = max((known for known in registry.names if model.startswith(f"{known}-")), key=len, default="")
    if name:
        return name, model[len(name) + 1 :]
    available = list_choices(f"{source.name}-{source.version}" for source in sources)
    raise InferenceError(kind, f"{message}. This server has: {available}", "model")


def _records(prediction: Prediction) -> str:
    return msgspec.json.encode(prediction.records()).decode()
