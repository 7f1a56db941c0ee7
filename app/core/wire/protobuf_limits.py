"""Parse protobuf messages, and limit their contents before that.

An empty nested message takes two bytes on the wire and about a hundred bytes parsed, so the size of a message does not
bound its cost. See https://protobuf.dev/programming-guides/encoding/ for the wire format.
"""

from functools import cache
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from tasks.inference.error import invalid
from tasks.inference.limits import Limits, too_large

_MIN_FIELD_BYTES = 2
_VARINT, _FIXED64, _LENGTH, _BEGIN, _END, _FIXED32 = range(6)
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_PACKED_SIZES = {
    **dict.fromkeys((FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64), 8),
    **dict.fromkeys((FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32), 4),
}
_OPAQUE_TYPES = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_VARIABLE_SIZE = 0

FieldTypes = dict[int, "Descriptor | int"]


def parse_message(message_type: Any, data: bytes, limits: Limits | None = None) -> Any:
    """Parse a message of the class `message_type`, within `limits` if given.

    Raise INVALID_REQUEST when the bytes are not such a message; TOO_LARGE as `check_message`.
    """
    if limits is not None:
        check_message(data, message_type.DESCRIPTOR, limits)
    try:
        return message_type.FromString(data)
    except DecodeError:
        raise invalid(f"Expected a {message_type.DESCRIPTOR.name}, got other bytes") from None


def check_message(data: bytes, descriptor: Descriptor, limits: Limits) -> None:
    """Reject a serialized message with more fields or packed numbers than a request may have.

    Fields of nested messages count, and each entry of a repeated field. Invalid bytes are left to the parser, which
    stops at the same position. Raise TOO_LARGE.

    Args:
        data: the serialized message.
        descriptor: its message type.
        limits: `max_entries` for fields, `max_elements` for packed numbers.
    """
    # A message this small cannot exceed the limits.
    if len(data) <= min(_MIN_FIELD_BYTES * limits.max_entries, limits.max_elements):
        return
    fields, elements = 0, 0
    messages: list[tuple[int, int, Descriptor]] = [(0, len(data), descriptor)]
    while messages:
        position, end, message_type = messages.pop()
        field_types = _field_types(message_type)
        while position < end:
            fields += 1
            if fields > limits.max_entries:
                raise too_large(limits.max_entries, "fields in one message (--max-entries)")
            tag, position = _read_varint(data, position, end)
            wire_type = tag & 7
            if wire_type == _VARINT:
                _, position = _read_varint(data, position, end)
            elif wire_type in _FIXED_SIZES:
                position += _FIXED_SIZES[wire_type]
            elif wire_type == _LENGTH:
                length, position = _read_varint(data, position, end)
                if length > end - position:
                    return
                field_type = field_types.get(tag >> 3)
                if isinstance(field_type, int):
                    elements += _count_packed(data, position, length, field_type)
                    if elements > limits.max_elements:
                        raise too_large(limits.max_elements, "tensor elements in one body (--max-elements)", elements)
                elif field_type is not None:
                    messages.append((position, position + length, field_type))
                position += length
            elif wire_type not in (_BEGIN, _END):
                return


def _read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return a varint and the position behind it; if it does not end, a number larger than any message."""
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


def _count_packed(data: bytes, position: int, length: int, size: int) -> int:
    if size != _VARIABLE_SIZE:
        return length // size
    # The last byte of a varint, and no other byte, has its highest bit clear.
    return int(np.count_nonzero(np.frombuffer(data, np.uint8, length, position) < 0x80))


@cache
def _field_types(descriptor: Descriptor) -> FieldTypes:
    """Return the message type, or the size of packed numbers, of each length-delimited field except texts and bytes."""
    field_types: FieldTypes = {}
    field: Any
    for field in descriptor.fields:
        if field.message_type is not None:
            field_types[field.number] = field.message_type
        elif field.type not in _OPAQUE_TYPES:
            field_types[field.number] = _PACKED_SIZES.get(field.type, _VARIABLE_SIZE)
    return field_types
