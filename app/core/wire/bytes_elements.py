"""BYTES elements of JSON protocols: a string is base64 when the task needs binary data, else text."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pybase64

from app.core.wire.data_url import decode_base64, decode_data_url, media_type_of
from app.core.wire.json_body import read_json
from app.core.wire.json_tensors import check_rows, shape_and_values
from tasks.inference.error import invalid
from tasks.inference.tensor import Element

_MIN_IN_PLACE_BYTES = 256
_PEEK_BYTES = 64


class BinaryElement(msgspec.Struct, frozen=True):
    """An element received as bytes."""

    data: bytes

    def binary(self) -> bytes:
        """Return the bytes."""
        return self.data

    def text(self) -> str:
        """Decode the bytes as UTF-8."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise invalid("Expected text in UTF-8, got other bytes") from None


class StringElement(msgspec.Struct, frozen=True):
    """An element received as a JSON string."""

    string: str

    def binary(self) -> bytes:
        """Decode the string as base64 or as a data URL, as `decode_base64` and `decode_data_url`."""
        return decode_base64(self.string) if media_type_of(self.string) is None else decode_data_url(self.string)

    def text(self) -> str:
        """Return the string."""
        return self.string


class _DecodedElement(msgspec.Struct, frozen=True):
    """A base64 string decoded from the request body without a copy; `source` is the JSON string with its quotes."""

    data: bytes
    source: memoryview

    def binary(self) -> bytes:
        return self.data

    def text(self) -> str:
        return msgspec.json.decode(self.source, type=str)


def string_elements(
    raw: msgspec.Raw, path: str, shape: Sequence[int] | None = None, shape_path: str = ""
) -> Sequence[Element]:
    """Return the elements of a JSON array of strings, flat or in nested rows, or of one bare string.

    Decode an array of one base64 string, the form of nearly every image request, without copying it first. Raise
    INVALID_REQUEST naming the element that is not a string, or rows that `shape` contradicts.
    """
    view = memoryview(raw)
    if len(view) > _MIN_IN_PLACE_BYTES and bytes(view[:2]) == b'["' and bytes(view[-2:]) == b'"]':
        try:
            return [_DecodedElement(pybase64.b64decode(view[2:-2], validate=True), view[1:-1])]
        except ValueError:
            pass
    if bytes(view[:1]) == b'"':
        return [StringElement(read_json(raw, str, path))]
    if not bytes(view[1:_PEEK_BYTES]).lstrip().startswith(b"["):
        return [StringElement(string) for string in read_json(raw, list[str], path)]
    rows_shape, texts = shape_and_values(read_json(raw, list[Any], path), path)
    if not all(isinstance(text, str) for text in texts):
        raise invalid("Expected texts, flat or in nested rows that are all of one depth", path)
    if shape is not None:
        check_rows(rows_shape, shape, shape_path)
    return [StringElement(text) for text in texts]
