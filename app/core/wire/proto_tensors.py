"""Tensors in protobuf messages with a repeated field for each datatype, the form of several protocols."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from numpy.typing import NDArray

from tasks.inference.error import invalid, quote_value
from tasks.inference.tensor import Datatype

_STORED_DTYPES: Mapping[int, np.dtype[Any]] = {
    FieldDescriptor.CPPTYPE_BOOL: np.dtype(np.bool_),
    FieldDescriptor.CPPTYPE_INT32: np.dtype(np.int32),
    FieldDescriptor.CPPTYPE_INT64: np.dtype(np.int64),
    FieldDescriptor.CPPTYPE_UINT32: np.dtype(np.uint32),
    FieldDescriptor.CPPTYPE_UINT64: np.dtype(np.uint64),
    FieldDescriptor.CPPTYPE_FLOAT: np.dtype(np.float32),
    FieldDescriptor.CPPTYPE_DOUBLE: np.dtype(np.float64),
    FieldDescriptor.CPPTYPE_STRING: np.dtype(object),
}


class ElementFields:
    """The repeated fields of a message that hold the elements of a tensor.

    Args:
        message_type: the class of the message.
        names: the field of each datatype. A field may serve several datatypes.

    Attributes:
        names: as above.
        stored_dtypes: the dtype in which protobuf stores the elements of each field.
    """

    def __init__(self, message_type: Any, names: Mapping[Datatype, str]) -> None:
        fields = message_type.DESCRIPTOR.fields_by_name
        self.names = names
        self.stored_dtypes = {name: _STORED_DTYPES[fields[name].cpp_type] for name in names.values()}

    def read(self, message: Any, datatype: Datatype, shape: Sequence[int], path: str) -> Sequence[Any]:
        """Return the elements of `message` in row-major order.

        Raise INVALID_REQUEST naming the field under `path`, for elements in the field of another datatype, and for a
        count that does not fit the shape.
        """
        name = self.names[datatype]
        for field, _ in message.ListFields():
            if field.name != name and field.name in self.stored_dtypes:
                raise invalid(f"Expected {name} for {datatype}, got {field.name}", f"{path}.{field.name}")
        values: Sequence[Any] = getattr(message, name)
        if len(values) != math.prod(shape):
            expected = f"Expected {math.prod(shape)} elements for the shape {quote_value(list(shape))}"
            raise invalid(f"{expected}, got {len(values)}", f"{path}.{name}")
        return values

    def to_array(self, values: Sequence[Any], datatype: Datatype) -> NDArray[Any]:
        """Return the values of the field of `datatype` in the dtype in which protobuf stores them."""
        return np.fromiter(values, self.stored_dtypes[self.names[datatype]], len(values))


def convert_exactly(numbers: NDArray[Any], datatype: Datatype, path: str) -> NDArray[Any]:
    """Convert `numbers` to another datatype without a change of value.

    Raise INVALID_REQUEST naming the first number that would change.
    """
    if numbers.dtype == datatype.dtype:
        return numbers
    with np.errstate(all="ignore"):
        cast = numbers.astype(datatype.dtype)
        is_unchanged = (cast.astype(numbers.dtype) == numbers) & ((cast < 0) == (numbers < 0))
        if numbers.dtype.kind == cast.dtype.kind == "f":
            is_unchanged |= np.isnan(numbers)
    check_unchanged(numbers, is_unchanged, datatype, path)
    return cast


def check_unchanged(numbers: NDArray[Any], is_unchanged: NDArray[np.bool_], datatype: Datatype, path: str) -> None:
    """Reject numbers that a conversion to `datatype` would change. Raise INVALID_REQUEST naming the first one."""
    changed = np.flatnonzero(~is_unchanged)
    if changed.size:
        first = int(changed[0])
        raise invalid(f"Expected {datatype} numbers, got {numbers[first]}", f"{path}[{first}]")
