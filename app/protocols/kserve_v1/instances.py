"""Instances of models with a task: each is one image, or one text, with parameters of its own."""

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
        path: where it stands in the body.
        datum: where its image or text stands.
        prompts: where its prompts stand; empty where they are a parameter, or there are none.
        own: the names of the parameters that it has itself.
    """

    tensor: InputTensor
    path: str
    datum: str
    prompts: str
    own: frozenset[str]

    def field(self, rest: str, request_parameters: str) -> str:
        """Where the body has what the neutral request has at `rest` within the input.

        Args:
            rest: a path without the input.
            request_parameters: where the request has its own parameters, which are the defaults of the instance's.
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
    """Read one instance.

    Args:
        raw: the instance.
        path: where it stands in the body.
        name: what the model's input is called.
        prompts: whether something can be asked about it.

    Raises:
        InferenceError: INVALID_REQUEST naming the field under `path`.
    """
    if bytes(memoryview(raw)[:1]) != b"{":
        tensor, datum = _datum(raw, path, name, {})
        return Instance(tensor=tensor, path=path, datum=datum, prompts="", own=frozenset())
    fields = read_json(raw, dict[str, msgspec.Raw], path)
    kind = _kind(name)
    names = dict.fromkeys((B64, name, *OTHER_NAMES.get(name, ())))
    found = [each for each in names if each in fields]
    if len(found) != 1:
        got = " and ".join(map(repr, found)) or brief(list(fields))
        raise invalid(f'Expected the {kind} under "{kind}" or "{B64}", got {got}', path)
    asked = [each for each in PROMPT_NAMES if prompts and each in fields]
    unknown = next((each for each in fields if each not in (*found, *asked, "parameters")), None)
    if unknown is not None:
        message = f'Expected nothing but the {kind}, and "parameters", got {brief(unknown)} too'
        raise invalid(message, path)
    given = _parameters(fields, f"{path}.parameters")
    parameters = {**given, **_prompts(fields, asked, given, path)}
    datum = f"{path}.{found[0]}"
    if found[0] == B64:
        tensor: InputTensor = _decoded(fields[B64], datum, name, parameters)
    else:
        tensor, datum = _datum(fields[found[0]], datum, name, parameters)
    where = f"{path}.{asked[0]}" if asked else ""
    return Instance(tensor=tensor, path=path, datum=datum, prompts=where, own=frozenset(given))


def _kind(name: str) -> str:
    return _IMAGE if name == IMAGE_INPUT.name else _TEXT


def _datum(raw: msgspec.Raw, path: str, name: str, parameters: Mapping[str, object]) -> tuple[InputTensor, str]:
    """An image or a text in one of its forms, and where exactly it stands."""
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
    # How an element is to be read is said by its form here: this would make a prompt of an image.
    return {name: value for name, value in parameters.items() if name != "content_type"}


def _prompts(
    fields: Mapping[str, msgspec.Raw], asked: Sequence[str], given: Mapping[str, object], path: str
) -> Mapping[str, object]:
    if not asked:
        return {}
    among = [f"parameters.{PROMPTS}"] if given.get(PROMPTS) is not None else []
    if len(asked) > 1 or among:
        names = " and ".join([*map(repr, asked), *among])
        raise invalid(f"Expected prompts in one place, got {names}", path)
    value = read_json(fields[asked[0]], object, f"{path}.{asked[0]}")
    # A prompt that is one text is that text, even where it reads like a list in JSON.
    return {PROMPTS: [value] if isinstance(value, str) else value}
