"""The neutral request, which each protocol decodes, and its parameters."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import inspect

from tasks.inference.error import InferenceError, invalid, truncate
from tasks.inference.limits import Limits, too_large
from tasks.inference.parameters import added_to, parameter_types
from tasks.inference.tensor import InputTensor, Tensor

T = TypeVar("T")

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A score or an overlap: 0..1, inclusive."""

Positive = Annotated[int, msgspec.Meta(ge=1)]
"""A count of at least one."""

TextList = tuple[str, ...]
"""Several texts. A string is also accepted: a JSON array of strings, or else one text."""

JsonObject = dict[str, Any]
"""A JSON object. A string with one is also accepted, because parameters of gRPC have no objects."""

_MAX_LIST_CHARACTERS = 4 * 1024 * 1024
_STEP = re.compile(r"\[[^\]]*\]|[^.\[]+")
_PATH_SUFFIX = re.compile(r" - at `(?:key in )?\$(?P<path>[^`]*)`$")
_ENUM_VALUE = re.compile(r"(?:(?<=^Invalid enum value )|(?<=^Invalid value )).*", re.DOTALL)
_INPUT_PARAMETER = re.compile(r"^inputs\[(?P<index>\d+)\]\.(?P<path>parameters\.(?P<name>[^.\[]+).*)$", re.DOTALL)


class InferenceRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One call of one model.

    Attributes:
        id: the client's id of the request. Protocols that require an id in responses generate a missing one.
        model_version: None for the latest.
        parameters: parameters of the request, the defaults of all inputs.
        timeout: the client's timeout in seconds since arrival; None for no timeout.
        lenient_inputs: whether a model's only input may have any name, a one-dimensional input the shape [N, 1], and
            BYTES a shape with -1, as in requests of Chariot's clients and MLServer's codecs.
    """

    id: str
    model_name: str
    model_version: str | None = None
    inputs: tuple[InputTensor, ...]
    parameters: Mapping[str, object] = {}
    timeout: float | None = None
    lenient_inputs: bool = False

    def parameter(self, index: int, name: str) -> object:
        """Return parameter `name` of input `index`, by default of the request; None if both lack it."""
        own_value = self.inputs[index].parameters.get(name)
        return own_value if name not in self.parameters or not _is_null(own_value) else self.parameters[name]

    def parameters_of(self, index: int) -> Mapping[str, object]:
        """Return the parameters of input `index` merged over the request's."""
        own_parameters = self.inputs[index].parameters
        if not self.parameters:
            return own_parameters
        return {
            **own_parameters,
            **self.parameters,
            **{name: value for name, value in own_parameters.items() if not _is_null(value)},
        }

    def locate(self, error: InferenceError) -> InferenceError:
        """Return `error` with the path of the request's parameter if the input inherited it."""
        match = _INPUT_PARAMETER.match(error.path)
        if match is None or int(match["index"]) >= len(self.inputs):
            return error
        name = match["name"]
        shared_value = self.parameters.get(name)
        own_value = self.inputs[int(match["index"])].parameters.get(name)
        is_inherited = shared_value is not None and (_is_null(own_value) or own_value is shared_value)
        if not is_inherited:
            return error
        return InferenceError(error.kind, error.message, match["path"])


def _is_null(value: object) -> bool:
    return value is None or (isinstance(value, msgspec.Raw) and bytes(value) == b"null")


def check_request(request: InferenceRequest, limits: Limits) -> None:
    """Reject names that are too long, and too many tensor elements. Raise TOO_LARGE, naming the field."""
    if request.parameters:
        _check_defaults(request, limits)
    max_length = limits.max_name_length
    # Skip encoding if even four bytes per character would fit.
    short = max_length // 4
    for name, path in ((request.id, "id"), (request.model_name, "model_name")):
        if len(name) > short:
            _check_name(name, max_length, path)
    for name in request.parameters:
        if len(name) > short:
            _check_name(name, max_length, "parameters")
    elements = 0
    for index, tensor in enumerate(request.inputs):
        path = f"inputs[{index}]"
        if len(tensor.name) > short:
            _check_name(tensor.name, max_length, f"{path}.name")
        for name in tensor.parameters:
            if len(name) > short:
                _check_name(name, max_length, f"{path}.parameters")
        elements += tensor.data.size if isinstance(tensor, Tensor) else len(tensor.elements)
        if elements > limits.max_elements:
            raise too_large(limits.max_elements, "tensor elements in one request (--max-elements)", elements, path)


def convert(value: object, target_type: type[T], path: str = "") -> T:
    """Convert `value` to `target_type` without coercion. Raise INVALID_REQUEST, naming the first invalid field."""
    try:
        return msgspec.convert(value, target_type)
    except msgspec.ValidationError as error:
        raise validation_error(error, path, target_type) from None


def validation_error(error: msgspec.ValidationError, path: str = "", expected_type: Any = None) -> InferenceError:
    """Return the error of msgspec as an InferenceError, with its path ``$.a[0].b`` placed under `path`.

    If the `expected_type` is known, the error of an unknown choice lists the choices.
    """
    text = str(error)
    suffix = _PATH_SUFFIX.search(text)
    own_path = suffix["path"].removeprefix(".") if suffix else ""
    message = _ENUM_VALUE.sub(lambda match: truncate(match[0]), _PATH_SUFFIX.sub("", text))
    if _ENUM_VALUE.search(message) and (known := known_names(expected_type, own_path)):
        message += f"; known are {', '.join(known)}"
    invalid_error = invalid(message, own_path)
    return invalid_error.with_prefix(path) if path else invalid_error


def known_names(expected_type: Any, path: str) -> Sequence[str]:
    """Return the choices that `expected_type` has at a path such as ``a[0].b``, or the fields of a structure there."""
    types = _alternatives(inspect.type_info(expected_type))
    for step in _STEP.findall(path):
        types = [alternative for kind in types for alternative in _members(kind, step)]
    names: list[str] = []
    for kind in types:
        if isinstance(kind, inspect.StructType):
            names += [field.encode_name for field in kind.fields]
        elif isinstance(kind, inspect.LiteralType | inspect.EnumType):
            names += map(str, kind.values if isinstance(kind, inspect.LiteralType) else kind.cls)
    return names


def _members(kind: Any, step: str) -> Sequence[Any]:
    if isinstance(kind, inspect.StructType) and kind.tag_field == step:
        return [inspect.LiteralType((kind.tag,))]
    if isinstance(kind, inspect.StructType):
        types = [field.type for field in kind.fields if field.encode_name == step]
        return _alternatives(types[0]) if types else ()
    return _alternatives(getattr(kind, "item_type", None) or getattr(kind, "value_type", None))


def _alternatives(kind: Any) -> Sequence[Any]:
    return kind.types if isinstance(kind, inspect.UnionType) else [kind]


def read_parameters(parameters_type: type[T], *layers: Mapping[str, object], path: str = "parameters") -> T:
    """Merge `layers`, later ones over earlier ones, and read the fields that `parameters_type` or a plugin declares.

    Unknown names are ignored, because clients add their own; null counts as absent. Raise INVALID_REQUEST, naming
    ``<path>.<field>``, for a wrong type, a number that is not finite, or a value out of range.
    """
    types = parameter_types(parameters_type)
    values = {name: value for layer in layers for name, value in layer.items() if value is not None and name in types}
    if not values:
        return parameters_type()
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise invalid(f"Expected a finite number, got {value}", f"{path}.{name}")
        if isinstance(value, str) and _includes(types[name], TextList):
            values[name] = [value]
            if value.lstrip().startswith("["):
                values[name] = _from_json(value, "array of strings", f"{path}.{name}")
        elif isinstance(value, str) and _includes(types[name], JsonObject):
            values[name] = _from_json(value, "object", f"{path}.{name}")
    added = tuple(
        convert({name: values.pop(name) for name in given}, kind, path)
        for kind in added_to(parameters_type)
        if (given := values.keys() & kind.__struct_fields__)
    )
    parameters: Any = convert(values, parameters_type, path)
    return msgspec.structs.replace(parameters, plugin_parameters=added) if added else parameters


def _from_json(value: str, expected: str, path: str) -> object:
    if len(value) > _MAX_LIST_CHARACTERS:
        raise too_large(_MAX_LIST_CHARACTERS, f"characters in a JSON {expected.partition(' ')[0]}", len(value), path)
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(f"Expected a JSON {expected}, got text that is not JSON ({error})", path) from None


@cache
def _includes(kind: Any, part: Any) -> bool:
    return kind == part or part in get_args(kind)


def _check_defaults(request: InferenceRequest, limits: Limits) -> None:
    # Each input returns and records them, so that a small request could produce a large response.
    count = len(request.inputs) * len(request.parameters)
    if count > limits.max_entries:
        unit = "parameters of the request, counted once for each input (--max-entries)"
        raise too_large(limits.max_entries, unit, count, "parameters")
    texts = [value for value in request.parameters.values() if isinstance(value, str | msgspec.Raw)]
    size = len(request.inputs) * sum(len(text) if isinstance(text, str) else len(memoryview(text)) for text in texts)
    if size > limits.max_request_bytes:
        unit = "bytes of the request's parameters, counted once for each input (--max-request-bytes)"
        raise too_large(limits.max_request_bytes, unit, size, "parameters")


def _check_name(name: str, max_length: int, path: str) -> None:
    if (length := len(name.encode(errors="surrogatepass"))) > max_length:
        raise too_large(max_length, "bytes in a name (--max-name-length)", length, path)
