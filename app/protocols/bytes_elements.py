"""BYTES elements as JSON protocols write them: one string that is base64 when the task wants binary data, else text."""

import binascii
from collections.abc import Sequence
from typing import TypeGuard, cast

import msgspec
import pybase64

from app.protocols.json_body import read_json
from tasks.exchange.error import invalid
from tasks.exchange.tensor import Element

__all__ = ("B64", "BinaryElement", "StringElement", "is_b64", "string_elements")

B64 = "b64"
"""The key under which an object holds bytes: TensorFlow Serving's form of them, which KServe V1 takes too."""


_URL_SAFE = str.maketrans("-_", "+/", " \t\r\n")
_WORTH_DECODING_IN_PLACE = 256


class BinaryElement(msgspec.Struct, frozen=True):
    """An element that came as bytes."""

    data: bytes

    def binary(self) -> bytes:
        """The bytes themselves."""
        return self.data

    def text(self) -> str:
        """The bytes read as UTF-8."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise invalid("Expected text in UTF-8, got other bytes") from None


class StringElement(msgspec.Struct, frozen=True):
    """An element that came as a JSON string."""

    string: str

    def binary(self) -> bytes:
        """The string read as base64 (RFC 4648).

        Standard or URL-safe, padded or not, with or without line breaks, with or without a ``data:`` prefix (RFC 2397).
        """
        encoded = self.string
        if encoded.startswith("data:"):
            head, comma, encoded = encoded.partition(",")
            if not comma or not head.endswith(";base64"):
                raise invalid("Expected a data URI of the form data:<type>;base64,<data>")
        try:
            return pybase64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return _decode_leniently(encoded)

    def text(self) -> str:
        """The string itself."""
        return self.string


class _DecodedElement(msgspec.Struct, frozen=True):
    """A base64 string that was decoded where it lay; `source` is the JSON string, quotes included."""

    data: bytes
    source: memoryview

    def binary(self) -> bytes:
        return self.data

    def text(self) -> str:
        return msgspec.json.decode(self.source, type=str)


def is_b64(value: object) -> TypeGuard[dict[str, str]]:
    """Whether `value` is bytes, as an object of one key, ``{"b64": "<base64>"}``."""
    if not isinstance(value, dict):
        return False
    members = cast("dict[str, object]", value)
    return len(members) == 1 and isinstance(members.get(B64), str)


def string_elements(raw: msgspec.Raw, path: str) -> Sequence[Element]:
    """The elements of a JSON array of strings, or of one bare string.

    An array of one base64 string, which nearly every image request has, is decoded without being copied first.

    Raises:
        InferenceError: INVALID_REQUEST naming the element that is not a string.
    """
    view = memoryview(raw)
    if len(view) > _WORTH_DECODING_IN_PLACE and bytes(view[:2]) == b'["' and bytes(view[-2:]) == b'"]':
        try:
            return [_DecodedElement(pybase64.b64decode(view[2:-2], validate=True), view[1:-1])]
        except (binascii.Error, ValueError):
            pass
    if bytes(view[:1]) == b'"':
        return [StringElement(read_json(raw, str, path))]
    return [StringElement(string) for string in read_json(raw, list[str], path)]


def _decode_leniently(encoded: str) -> bytes:
    compact = encoded.translate(_URL_SAFE).rstrip("=")
    try:
        return pybase64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError):
        shown = encoded if len(encoded) <= 24 else f"{encoded[:24]}..."
        raise invalid(f"Expected base64, got {shown!r}") from None
