"""Instances for models with a task type: each is one image or one text with its own parameters."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.protocols.bytes_elements import B64, BinaryElement, StringElement
from app.protocols.input_names import OTHER_NAMES, PROMPT_NAMES, PROMPTS
from app.protocols.json_body import read_json
from app.protocols.json_parameters import read_parameters_object
from app.protocols.kserve_v1.nesting import nested_tensor
from tasks.exchange.error import InferenceError, brief, invalid
from tasks.exchange.tensor import BytesTensor, Datatype, InputTensor
from tasks.vision.request import IMAGE_INPUT

__all__ = ("Instance", "read_instance")

_IMAGE = "image"
_TEXT = "text"
_FORMS = {
    _IMAGE: 'an image as base64, {"b64": "<base64>"} or rows of pixels',
    _TEXT: 'a text, or {"b64": "<base64>"}',
}
_ELEMENT = re.compile(r"^data(\[0\])?$|^shape$|^datatype$")
_PIXELS = re.compile(r"^data(?=\[|$)|^shape$|^datatype$")
_PARAMETER = re.compile(r"^parameters\.(?P<name>\w+)(?P<rest>.*)$")


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance.

    Attributes:
        tensor: its image or text, and its parameters.
        path: path of the instance in the body.
        datum: path of its image or text.
        prompts: path of its prompts; empty if they are a parameter, or missing.
        own: names of the parameters that the instance has itself.
    """

    tensor: InputTensor
    path: str
    datum: str
    prompts: str
    own: frozenset[str]

    def field(self, rest: str, request_parameters: str) -> str:
        """Return the path in the body for the path `rest` within the neutral input.

        Args:
            rest: a path below the input.
            request_parameters: path of the request's parameters, which are defaults for the instance's parameters.
        """
        parameter = _PARAMETER.match(rest)
        if parameter is None:
            pattern = _ELEMENT if isinstance(self.tensor, BytesTensor) else _PIXELS
            return pattern.sub(self.datum, rest) if rest else self.path
        name = parameter["name"]
        if name == PROMPTS and self.prompts:
            return self.prompts + parameter["rest"]
        where = f"{self.path}.parameters" if name in self.own else request_parameters
        return f"{where}.{name}{parameter['rest']}"


def read_instance(raw: msgspec.Raw, path: str, name: str, *, prompts: bool) -> Instance:
    """Decode one instance.

    Args:
        raw: the JSON of the instance.
        path: path of the instance in the body.
        name: name of the model's input.
        prompts: whether the model accepts prompts.

    Raises:
        InferenceError: INVALID_REQUEST naming the field under `path`.
    """
    if bytes(memoryview(raw)[:1]) != b"{":
        tensor, datum = _datum(raw, path, name, {})
        return Instance(tensor=tensor, path=path, datum=datum, prompts="", own=frozenset())
    fields = read_json(raw, dict[str, msgspec.Raw], path)
    kind = _kind(name)
    names = dict.fromkeys((B64, name, *OTHER_NAMES.get(name, ())))
    found = [key for key in names if key in fields]
    if len(found) != 1:
        got = " and ".join(map(repr, found)) or brief(list(fields))
        raise invalid(f'Expected the {kind} under "{kind}" or "{B64}", got {got}', path)
    prompt_keys = [key for key in PROMPT_NAMES if prompts and key in fields]
    unknown = next((key for key in fields if key not in (*found, *prompt_keys, "parameters")), None)
    if unknown is not None:
        message = f'Expected nothing but the {kind}, and "parameters", got {brief(unknown)} too'
        raise invalid(message, path)
    given = _parameters(fields, f"{path}.parameters")
    parameters = {**given, **_prompts(fields, prompt_keys, given, path)}
    datum = f"{path}.{found[0]}"
    if found[0] == B64:
        tensor: InputTensor = _decoded(fields[B64], datum, name, parameters)
    else:
        tensor, datum = _datum(fields[found[0]], datum, name, parameters)
    where = f"{path}.{prompt_keys[0]}" if prompt_keys else ""
    return Instance(tensor=tensor, path=path, datum=datum, prompts=where, own=frozenset(given))


def _kind(name: str) -> str:
    return _IMAGE if name == IMAGE_INPUT.name else _TEXT


def _datum(raw: msgspec.Raw, path: str, name: str, parameters: Mapping[str, object]) -> tuple[InputTensor, str]:
    """Return an image or a text in one of its forms, and its exact path."""
    first = bytes(memoryview(raw)[:1])
    kind = _kind(name)
    if first == b'"':
        element = StringElement(read_json(raw, str, path))
        return BytesTensor(name=name, shape=(1,), elements=[element], parameters=parameters), path
    if first == b"[" and kind == _IMAGE:
        return _pixels(raw, path, name, parameters), path
    fields = read_json(raw, dict[str, msgspec.Raw], path) if first == b"{" else {}
    if list(fields) != [B64]:
        got = brief(list(fields)) if first == b"{" else brief(read_json(raw, object, path))
        raise invalid(f"Expected {_FORMS[kind]}, got {got}", path)
    return _decoded(fields[B64], f"{path}.{B64}", name, parameters), f"{path}.{B64}"


def _decoded(raw: msgspec.Raw, path: str, name: str, parameters: Mapping[str, object]) -> BytesTensor:
    try:
        element = BinaryElement(StringElement(read_json(raw, str)).binary())
    except InferenceError as error:
        raise error.under(path) from None
    return BytesTensor(name=name, shape=(1,), elements=[element], parameters=parameters)


def _pixels(raw: msgspec.Raw, path: str, name: str, parameters: Mapping[str, object]) -> InputTensor:
    try:
        tensor = nested_tensor(name, Datatype.UINT8, raw, "pixels", parameters)
    except InferenceError as error:
        where = path + error.path.removeprefix("pixels.data") if error.path.startswith("pixels.data") else path
        raise InferenceError(error.kind, error.message, where) from None
    if len(tensor.shape) not in (2, 3):
        message = f"Expected the rows of one image, [h, w] or [h, w, 3], got the shape {brief(list(tensor.shape))}"
        raise invalid(message, path)
    return tensor


def _parameters(fields: Mapping[str, msgspec.Raw], path: str) -> Mapping[str, object]:
    kind: Any = dict[str, msgspec.Raw] | None
    given = read_json(fields["parameters"], kind, path) if "parameters" in fields else None
    parameters = read_parameters_object(given, path)
    # In V1 the JSON form decides how an element is decoded. A content_type would turn an image into a prompt.
    return {name: value for name, value in parameters.items() if name != "content_type"}


def _prompts(
    fields: Mapping[str, msgspec.Raw], prompt_keys: Sequence[str], given: Mapping[str, object], path: str
) -> Mapping[str, object]:
    if not prompt_keys:
        return {}
    among = [f"parameters.{PROMPTS}"] if given.get(PROMPTS) is not None else []
    if len(prompt_keys) > 1 or among:
        names = " and ".join([*map(repr, prompt_keys), *among])
        raise invalid(f"Expected prompts in one place, got {names}", path)
    value = read_json(fields[prompt_keys[0]], object, f"{path}.{prompt_keys[0]}")
    # A single text is one prompt, even if it looks like a JSON list.
    return {PROMPTS: [value] if isinstance(value, str) else value}
