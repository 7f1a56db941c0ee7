"""Bytes as JSON objects with base64, ``{"b64": "<base64>"}``: TensorFlow Serving's form, which KServe V1 also has."""

from collections.abc import Sequence
from typing import TypeGuard, cast

import pybase64

from app.core.wire.bytes_elements import BinaryElement, StringElement
from app.core.wire.json_tensors import index_path
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.tensor import BytesTensor, Element

BASE64_KEY = "b64"


def is_base64_object(value: object) -> TypeGuard[dict[str, str]]:
    """Return whether `value` is bytes as an object with one key, ``{"b64": "<base64>"}``."""
    if not isinstance(value, dict):
        return False
    members = cast("dict[str, object]", value)
    return len(members) == 1 and isinstance(members.get(BASE64_KEY), str)


def base64_object(data: bytes) -> dict[str, str]:
    """Return bytes as an object that holds base64."""
    return {BASE64_KEY: pybase64.b64encode_as_string(data)}


def nested_elements(name: str, shape: tuple[int, ...], values: Sequence[object], path: str) -> BytesTensor:
    """Return the tensor of nested rows at `path` of texts and base64 objects.

    `shape` has the lengths of the rows, `values` their values in row-major order. Raise INVALID_REQUEST naming the
    value under `path`.
    """
    elements: list[Element] = []
    for index, value in enumerate(values):
        try:
            elements.append(_element(value))
        except InferenceError as error:
            raise error.with_prefix(path + index_path(index, shape)) from None
    return BytesTensor(name=name, shape=shape, elements=elements)


def _element(value: object) -> Element:
    if isinstance(value, str):
        return StringElement(value)
    if is_base64_object(value):
        return BinaryElement(StringElement(value[BASE64_KEY]).binary())
    raise invalid(f'Expected a text, or {{"b64": "<base64>"}}, got {quote_value(value)}')
