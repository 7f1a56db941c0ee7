"""TensorFlow's names for datatypes."""

from tasks.inference.tensor import Datatype

_SHORT_NAMES = {
    Datatype.BOOL: "bool",
    Datatype.UINT8: "uint8",
    Datatype.UINT16: "uint16",
    Datatype.UINT32: "uint32",
    Datatype.UINT64: "uint64",
    Datatype.INT8: "int8",
    Datatype.INT16: "int16",
    Datatype.INT32: "int32",
    Datatype.INT64: "int64",
    Datatype.FP16: "half",
    Datatype.FP32: "float",
    Datatype.FP64: "double",
    Datatype.BF16: "bfloat16",
    Datatype.BYTES: "string",
}


def short_name(datatype: Datatype) -> str:
    """Return the name in messages, such as ``float``."""
    return _SHORT_NAMES[datatype]


def enum_name(datatype: Datatype) -> str:
    """Return the name in metadata, such as ``DT_FLOAT`` (`types.proto`)."""
    return f"DT_{_SHORT_NAMES[datatype].upper()}"


def datatype_of(name: str) -> Datatype | None:
    """Return the datatype for a name in `types.proto`, such as ``DT_FLOAT``; None for one that no model here has."""
    return _DATATYPES.get(name)


_DATATYPES = {enum_name(datatype): datatype for datatype in _SHORT_NAMES}
