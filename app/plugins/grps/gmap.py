"""Decode `gmap`: images or texts by name with parameters and metadata; responses use the same names.

GRPS leaves the meaning of a map to the model. Here, `s_b` holds encoded images. `s_s` and the numeric maps hold
parameters by name. For text tasks, every other text of `s_s` is an input. For a model of tensors, every entry is an
input with one element.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from app.core.wire.bytes_elements import BinaryElement, StringElement
from app.core.wire.json_body import read_json
from app.core.wire.json_tensors import MAX_DIMENSIONS
from app.plugins.grps.messages import entry_path
from app.plugins.grps.tensors import convert_numbers, sent_datatype, wire_values
from metadata.request import METADATA_PARAMETER as METADATA
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.limits import too_large
from tasks.inference.tensor import BytesTensor, Datatype, Element, InputTensor, Tensor, TensorSpec

_PARAMETERS = "parameters"
_MAX_PARAMETER_CHARACTERS = 4 * 1024 * 1024
_SIMILARITY = "similarity"
_INPUT_SUFFIXES = (f".{METADATA}", f".{_PARAMETERS}")
_PROMPTS = frozenset({"prompt", "question", "text"})
_NUMBERS = {"s_i32": Datatype.INT32, "s_i64": Datatype.INT64, "s_f": Datatype.FP32, "s_d": Datatype.FP64}
_FIELDS = {datatype: field for field, datatype in _NUMBERS.items()} | {
    **dict.fromkeys((Datatype.UINT8, Datatype.INT8, Datatype.INT16), "s_i32"),
    Datatype.FP16: "s_f",
    Datatype.BYTES: "s_s",
}
"""The field for a value of each datatype of GRPS."""


class MapContent(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The content of a map.

    Attributes:
        inputs: images or texts, sorted by name, because a map has no order.
        paths: path of each input.
        parameters: parameters for all inputs.
        parameter_paths: path of each of these parameters.
        echoes: for each input with metadata, the key of the metadata in `s_s`, also used in the response.
    """

    inputs: tuple[BytesTensor, ...]
    paths: tuple[str, ...]
    parameters: Mapping[str, object]
    parameter_paths: Mapping[str, str]
    echoes: Mapping[str, str]


def read_map(gmap: Any, parameter_names: Collection[str] | None = None) -> MapContent:
    """Decode a `GenericMapData`.

    Raise INVALID_REQUEST naming the entry.

    Args:
        gmap: the map.
        parameter_names: parameter names of a text task; None for an image task, where every text in `s_s` is a
            parameter.
    """
    texts = dict(gmap.s_s)
    elements = _elements(gmap, texts, parameter_names)
    names = sorted(elements)
    input_parameters, echoes = _pop_input_parameters(names, texts)
    parameters, parameter_paths = _shared_parameters(gmap, texts)
    return MapContent(
        inputs=tuple(
            BytesTensor(name=name, shape=(1,), elements=[elements[name][1]], parameters=input_parameters[name])
            for name in names
        ),
        paths=tuple(entry_path(elements[name][0], name) for name in names),
        parameters=parameters,
        parameter_paths=parameter_paths,
        echoes=echoes,
    )


def read_scalars(gmap: Any, specs: Sequence[TensorSpec]) -> tuple[Sequence[InputTensor], Sequence[str]]:
    """Decode a map for a model of tensors: inputs with one element, sorted by name, and their paths.

    Raise INVALID_REQUEST naming the entry.
    """
    values: dict[str, tuple[str, Any]] = {}
    for field in ("s_s", "s_b", *_NUMBERS):
        for name, value in getattr(gmap, field).items():
            if name in values:
                raise invalid(f"Expected one value for {quote_value(name)}, got another one", entry_path(field, name))
            values[name] = (field, value)
    if not values:
        raise invalid("Expected the inputs of the model by name, got none", "gmap")
    spec_by_name = {spec.name: spec for spec in specs}
    inputs = [_scalar(name, *values[name], spec_by_name.get(name)) for name in sorted(values)]
    return inputs, [entry_path(values[name][0], name) for name in sorted(values)]


def write_scalars(message: Any, tensors: Sequence[Tensor]) -> None:
    """Write tensors with one element each into the map of `message`, by name; bytes that are no text into `s_b`."""
    message.gmap.SetInParent()
    for tensor in tensors:
        field = _FIELDS[sent_datatype(tensor.datatype)]
        try:
            (value,) = wire_values(tensor)
        except InferenceError:
            if field != "s_s":
                raise
            field, value = "s_b", tensor.data.item()
        getattr(message.gmap, field)[tensor.name] = value


def echo_metadata(message: Any, name: str, parameters: Mapping[str, object], echoes: Mapping[str, str]) -> None:
    """Write the metadata in the `parameters` of output `name` into the map of `message`.

    If the server watches for drift, also write the similarity as ``<name>.similarity`` into `s_f`.
    """
    if METADATA in parameters:
        message.gmap.s_s[echoes.get(name, f"{name}.{METADATA}")] = str(parameters[METADATA])
    similarity = parameters.get(_SIMILARITY)
    if isinstance(similarity, float):
        message.gmap.s_f[f"{name}.{_SIMILARITY}"] = similarity


def _scalar(name: str, field: str, value: Any, spec: TensorSpec | None) -> InputTensor:
    shape = (1,) * (1 if spec is None else min(len(spec.shape), MAX_DIMENSIONS))
    if field not in _NUMBERS:
        element = StringElement(value) if field == "s_s" else BinaryElement(value)
        return BytesTensor(name=name, shape=shape, elements=[element])
    path, sent = entry_path(field, name), _NUMBERS[field]
    try:
        datatype, data = convert_numbers(np.array([value], sent.dtype), sent, spec, path, rounds=True)
    except InferenceError as error:
        raise invalid(error.message, path) from None
    return Tensor(name=name, datatype=datatype, data=data.reshape(shape))


def _elements(
    gmap: Any, texts: dict[str, str], parameter_names: Collection[str] | None
) -> Mapping[str, tuple[str, Element]]:
    """Return the field and element of each input. Input texts are removed from `texts`."""
    inputs: dict[str, tuple[str, Element]] = {name: ("s_b", BinaryElement(data)) for name, data in gmap.s_b.items()}
    for name in inputs:
        if name == METADATA or name.endswith(_INPUT_SUFFIXES):
            raise invalid("Expected the name of an input, got a reserved name", entry_path("s_b", name))
    if parameter_names is None:
        if not inputs:
            raise invalid("Expected an encoded image at least, got none", "gmap.s_b")
        return inputs
    reserved = {METADATA, _PARAMETERS, *parameter_names}
    for name in [key for key in texts if key not in reserved and not key.endswith(_INPUT_SUFFIXES)]:
        if name in inputs:
            raise invalid("Expected a text once, got it in s_b as well", entry_path("s_s", name))
        inputs[name] = ("s_s", StringElement(texts.pop(name)))
    if not inputs:
        raise invalid("Expected a text at least, got none", "gmap.s_s")
    return inputs


def _pop_input_parameters(
    names: list[str], texts: dict[str, str]
) -> tuple[Mapping[str, Mapping[str, object]], Mapping[str, str]]:
    """Remove metadata and input parameters from `texts`. Return each input's parameters, and the echoes."""
    shared_metadata = texts.pop(METADATA, None)
    input_parameters: dict[str, Mapping[str, object]] = {}
    echoes: dict[str, str] = {}
    for name in names:
        key = f"{name}.{_PARAMETERS}"
        parameters = _decode_parameters(texts.pop(key, "{}"), entry_path("s_s", key))
        key = f"{name}.{METADATA}"
        own_metadata = texts.pop(key, None)
        metadata = own_metadata if own_metadata is not None else shared_metadata
        if metadata is not None:
            echoes[name] = key if own_metadata is not None else METADATA
            parameters = {**parameters, METADATA: metadata}
        input_parameters[name] = parameters
    if shared_metadata is not None and METADATA not in echoes.values():
        raise invalid("Expected an input without metadata of its own, got none", entry_path("s_s", METADATA))
    for key in texts:
        if key.endswith(_INPUT_SUFFIXES):
            message = f"Expected the name of an image or a text before the dot, got {quote_value(key)}"
            raise invalid(message, entry_path("s_s", key))
    return input_parameters, echoes


def _shared_parameters(gmap: Any, texts: dict[str, str]) -> tuple[Mapping[str, object], Mapping[str, str]]:
    """Return the parameters of all inputs, and their paths. Single entries override the `parameters` entry."""
    parameters_path = entry_path("s_s", _PARAMETERS)
    from_object = _decode_parameters(texts.pop(_PARAMETERS, "{}"), parameters_path)
    from_entries: dict[str, object] = {}
    parameter_paths: dict[str, str] = {}
    entries = [("s_s", key, value) for key, value in texts.items()]
    entries += [(field, key, value) for field in _NUMBERS for key, value in getattr(gmap, field).items()]
    for field, key, value in entries:
        name = "prompts" if field == "s_s" and key in _PROMPTS else key
        if name in from_entries:
            raise invalid(f"Expected one value for {quote_value(name)}, got another one", entry_path(field, key))
        from_entries[name] = [value] if name != key else value
        parameter_paths[name] = entry_path(field, key)
    return {**from_object, **from_entries}, {
        **{name: f"{parameters_path}.{name}" for name in from_object},
        **parameter_paths,
    }


def _decode_parameters(text: str, path: str) -> Mapping[str, object]:
    """Decode a text with a JSON object of parameters."""
    if len(text) > _MAX_PARAMETER_CHARACTERS:
        raise too_large(_MAX_PARAMETER_CHARACTERS, "characters of parameters", len(text), path)
    parameters = read_json(text.encode(), dict[str, object], path)
    if METADATA in parameters:
        raise invalid("Expected metadata in its own entry of s_s, to be returned unchanged", f"{path}.{METADATA}")
    return parameters
