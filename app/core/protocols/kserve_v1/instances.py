"""Instances for models with a task type: each is one image or one text with its own parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.core.engine.models.servable import Servable
from app.core.protocols.kserve_v1.base64_objects import BASE64_KEY
from app.core.protocols.kserve_v1.rows import nested_tensor
from app.core.wire.bytes_elements import BinaryElement, StringElement
from app.core.wire.error_paths import move
from app.core.wire.json_body import read_json, read_parameters_object
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor
from tasks.text_generation import TEXT_INPUT
from tasks.vision.request import IMAGE_INPUT

INPUT_ALIASES: Mapping[str, Sequence[str]] = {
    IMAGE_INPUT.name: ("image_bytes", "data"),
    TEXT_INPUT.name: ("text", "prompt", "question"),
}
"""Alternative names that clients use, by the name that a task declares."""

PROMPTS = "prompts"
"""The parameter with the prompts for an image."""

PROMPT_NAMES = ("prompt", PROMPTS, "question", "text")
"""Names for prompts that are a field beside an image."""

_IMAGE = "image"
_TEXT = "text"
_FORMS = {
    _IMAGE: 'an image as base64, {"b64": "<base64>"} or rows of pixels',
    _TEXT: 'a text, or {"b64": "<base64>"}',
}


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance.

    Attributes:
        tensor: its image or text, and its parameters.
        path: path of the instance in the body.
        value_path: path of its image or text.
        prompts_path: path of its prompts; empty if they are a parameter, or missing.
        own_parameters: names of the parameters that the instance has itself.
    """

    tensor: InputTensor
    path: str
    value_path: str
    prompts_path: str = ""
    own_parameters: frozenset[str] = frozenset()

    def body_path(self, subpath: str) -> str:
        """Return the path in the body for the path `subpath` within the neutral input."""
        places = {"": self.path, "parameters": "parameters"}
        places |= dict.fromkeys(("data", "shape", "datatype"), self.value_path)
        if isinstance(self.tensor, BytesTensor):
            places["data[0]"] = self.value_path
        if self.prompts_path:
            places[f"parameters.{PROMPTS}"] = self.prompts_path
        places |= {f"parameters.{name}": f"{self.path}.parameters.{name}" for name in self.own_parameters}
        return move(subpath, places)


def takes_prompts(servable: Servable) -> bool:
    """Return whether the model accepts prompts for its inputs."""
    return PROMPTS in servable.parameter_names


def read_instance(raw: msgspec.Raw, path: str, name: str, *, prompts: bool) -> Instance:
    """Decode the instance at `path`, for a model whose input is called `name`. `prompts`: whether it accepts prompts.

    Raise INVALID_REQUEST naming the field under `path`.
    """
    if bytes(memoryview(raw)[:1]) != b"{":
        tensor, value_path = _read_value(raw, path, name, {})
        return Instance(tensor=tensor, path=path, value_path=value_path)
    fields = read_json(raw, dict[str, msgspec.Raw], path)
    kind = _value_kind(name)
    names = dict.fromkeys((BASE64_KEY, name, *INPUT_ALIASES.get(name, ())))
    value_keys = [key for key in names if key in fields]
    if len(value_keys) != 1:
        got = " and ".join(map(repr, value_keys)) or quote_value(list(fields))
        raise invalid(f'Expected the {kind} under "{kind}" or "{BASE64_KEY}", got {got}', path)
    prompt_keys = [key for key in PROMPT_NAMES if prompts and key in fields]
    unknown = next((key for key in fields if key not in (*value_keys, *prompt_keys, "parameters")), None)
    if unknown is not None:
        message = f'Expected nothing but the {kind}, and "parameters", got {quote_value(unknown)} too'
        raise invalid(message, path)
    parameters_path = f"{path}.parameters"
    optional_object: Any = dict[str, msgspec.Raw] | None
    given = fields.get("parameters")
    raw_parameters = None if given is None else read_json(given, optional_object, parameters_path)
    own_parameters = without_content_type(read_parameters_object(raw_parameters, parameters_path))
    parameters = {**own_parameters, **_prompts(fields, prompt_keys, own_parameters, path)}
    value_path = f"{path}.{value_keys[0]}"
    if value_keys[0] == BASE64_KEY:
        tensor: InputTensor = _decode_base64(fields[BASE64_KEY], value_path, name, parameters)
    else:
        tensor, value_path = _read_value(fields[value_keys[0]], value_path, name, parameters)
    prompts_path = f"{path}.{prompt_keys[0]}" if prompt_keys else ""
    return Instance(
        tensor=tensor,
        path=path,
        value_path=value_path,
        prompts_path=prompts_path,
        own_parameters=frozenset(own_parameters),
    )


def _value_kind(name: str) -> str:
    return _IMAGE if name == IMAGE_INPUT.name else _TEXT


def _read_value(raw: msgspec.Raw, path: str, name: str, parameters: Mapping[str, object]) -> tuple[InputTensor, str]:
    """Return an image or a text in one of its forms, and its exact path."""
    first_byte = bytes(memoryview(raw)[:1])
    kind = _value_kind(name)
    if first_byte == b'"':
        element = StringElement(read_json(raw, str, path))
        return BytesTensor(name=name, shape=(1,), elements=[element], parameters=parameters), path
    if first_byte == b"[" and kind == _IMAGE:
        return _pixels(raw, path, name, parameters), path
    fields = read_json(raw, dict[str, msgspec.Raw], path) if first_byte == b"{" else {}
    if list(fields) != [BASE64_KEY]:
        got = quote_value(list(fields)) if first_byte == b"{" else quote_value(read_json(raw, object, path))
        raise invalid(f"Expected {_FORMS[kind]}, got {got}", path)
    return _decode_base64(fields[BASE64_KEY], f"{path}.{BASE64_KEY}", name, parameters), f"{path}.{BASE64_KEY}"


def _decode_base64(raw: msgspec.Raw, path: str, name: str, parameters: Mapping[str, object]) -> BytesTensor:
    try:
        element = BinaryElement(StringElement(read_json(raw, str)).binary())
    except InferenceError as error:
        raise error.with_prefix(path) from None
    return BytesTensor(name=name, shape=(1,), elements=[element], parameters=parameters)


def _pixels(raw: msgspec.Raw, path: str, name: str, parameters: Mapping[str, object]) -> InputTensor:
    tensor = nested_tensor(name, Datatype.UINT8, raw, path, parameters)
    if len(tensor.shape) not in (2, 3):
        message = (
            f"Expected the rows of one image, [h, w] or [h, w, 3], got the shape {quote_value(list(tensor.shape))}"
        )
        raise invalid(message, path)
    return tensor


def without_content_type(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """Return `parameters` without `content_type`, which would turn an image into a prompt.

    In V1 the JSON form decides how an element is decoded.
    """
    return {name: value for name, value in parameters.items() if name != "content_type"}


def _prompts(
    fields: Mapping[str, msgspec.Raw], prompt_keys: Sequence[str], own_parameters: Mapping[str, object], path: str
) -> Mapping[str, object]:
    if not prompt_keys:
        return {}
    conflicting = [f"parameters.{PROMPTS}"] if own_parameters.get(PROMPTS) is not None else []
    if len(prompt_keys) > 1 or conflicting:
        names = " and ".join([*map(repr, prompt_keys), *conflicting])
        raise invalid(f"Expected prompts in one place, got {names}", path)
    value = read_json(fields[prompt_keys[0]], object, f"{path}.{prompt_keys[0]}")
    # A single text is one prompt, even if it looks like a JSON list.
    return {PROMPTS: [value] if isinstance(value, str) else value}
