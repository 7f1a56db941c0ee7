"""How much there may be in a protobuf message, told before it is parsed.

An empty message within another is two bytes on the wire and about a hundred parsed, so that the size of a message says
little of what it costs. The wire format is https://protobuf.dev/programming-guides/encoding/.
"""

from functools import cache
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tasks.exchange.limits import Limits, beyond

__all__ = ("check_message",)

_LEAST_FIELD = 2
_VARINT, _FIXED64, _LENGTH, _BEGIN, _END, _FIXED32 = range(6)
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_PACKED_SIZES = {
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
}
_OPAQUE = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_OF_ANY_SIZE = 0

Kinds = dict[int, "Descriptor | int"]


def check_message(data: bytes, descriptor: Descriptor, limits: Limits) -> None:
    """Refuse a serialized message of more fields or packed numbers than a request may have.

    Fields of messages within it count, each entry of a repeated one. Whether the bytes are such a message is left to
    the parser, which reads no further than this does.

    Args:
        data: the message.
        descriptor: of its type.
        limits: `max_entries` for fields, `max_elements` for packed numbers.

    Raises:
        InferenceError: TOO_LARGE.
    """
    # In so few bytes there cannot be more.
    if len(data) <= min(_LEAST_FIELD * limits.max_entries, limits.max_elements):
        return
    fields, elements = 0, 0
    messages: list[tuple[int, int, Descriptor]] = [(0, len(data), descriptor)]
    while messages:
        position, end, of = messages.pop()
        kinds = _kinds(of)
        while position < end:
            fields += 1
            if fields > limits.max_entries:
                raise beyond(limits.max_entries, "fields in one message")
            tag, position = _varint(data, position, end)
            wire = tag & 7
            if wire == _VARINT:
                _, position = _varint(data, position, end)
            elif wire in _FIXED_SIZES:
                position += _FIXED_SIZES[wire]
            elif wire == _LENGTH:
                length, position = _varint(data, position, end)
                if length > end - position:
                    return
                kind = kinds.get(tag >> 3)
                if isinstance(kind, int):
                    elements += _packed(data, position, length, kind)
                    if elements > limits.max_elements:
                        raise beyond(limits.max_elements, "tensor elements in one request", elements)
                elif kind is not None:
                    messages.append((position, position + length, kind))
                position += length
            elif wire not in (_BEGIN, _END):
                return


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A number, and where it has ended; one that does not end within its message reaches far behind it."""
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            break
    return 1 << 63, end


def _packed(data: bytes, position: int, length: int, size: int) -> int:
    if size != _OF_ANY_SIZE:
        return length // size
    # The last byte of each number, and no other, has no highest bit.
    return int(np.count_nonzero(np.frombuffer(data, np.uint8, length, position) < 0x80))


@cache
def _kinds(descriptor: Descriptor) -> Kinds:
    """What stands in the fields that have a length: messages, or packed numbers of a size; texts are left out."""
    found: Kinds = {}
    field: Any
    for field in descriptor.fields:
        if field.message_type is not None:
            found[field.number] = field.message_type
        elif field.type not in _OPAQUE:
            found[field.number] = _PACKED_SIZES.get(field.type, _OF_ANY_SIZE)
    return found
