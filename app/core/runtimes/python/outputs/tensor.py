"""Convert the return value of a tensor model."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.python.outputs.value_parsing import array, describe, invalid_answer, text
from tasks.inference.tensor import Datatype, Tensor, TensorSpec
from tasks.tensor_inference import Tensors


def read_tensors(value: object, path: str, specs: Sequence[TensorSpec]) -> Tensors:
    """Read the declared outputs from a dict of arrays by name, or raise an `InferenceError` MODEL_FAILED."""
    arrays = cast("Mapping[object, object]", value) if isinstance(value, Mapping) else None
    if arrays is None or set(arrays) != {spec.name for spec in specs}:
        names = ", ".join(repr(spec.name) for spec in specs)
        raise invalid_answer(path, f"a dict of the arrays {names}", describe(cast("object", value)))
    return Tensors([_tensor(arrays[spec.name], f'{path}["{spec.name}"]', spec) for spec in specs])


def _tensor(value: object, path: str, spec: TensorSpec) -> Tensor:
    # Arrays of bytes lose zero bytes at the end of an element; arrays of objects keep them.
    converted = array(value, path, object if spec.datatype is Datatype.BYTES else None)
    if not spec.accepts(converted.shape):
        raise invalid_answer(path, f"the shape {list(spec.shape)}", str(list(converted.shape)))
    if spec.datatype is Datatype.BYTES:
        return Tensor(name=spec.name, datatype=spec.datatype, data=_encoded(converted, path))
    if converted.dtype.kind not in "biuf" or not _can_hold(spec.datatype, converted):
        raise invalid_answer(path, f"{spec.datatype} or values that it can represent", str(converted.dtype))
    with np.errstate(over="ignore"):
        return Tensor(name=spec.name, datatype=spec.datatype, data=converted.astype(spec.datatype.dtype))


def _can_hold(datatype: Datatype, converted: NDArray[Any]) -> bool:
    """Return whether a conversion keeps the kind of numbers and the value of integers. Floats may lose precision."""
    if np.can_cast(converted.dtype, datatype.dtype, "same_kind"):
        return converted.dtype.kind == "f" or bool((converted.astype(datatype.dtype) == converted).all())
    # Python integers become INT64.
    integers = converted.dtype.kind in "iu" and datatype.kind in "iu"
    return integers and bool((converted.astype(datatype.dtype) == converted).all())


def _encoded(converted: NDArray[Any], path: str) -> NDArray[Any]:
    encoded = np.empty(converted.size, object)
    for index, element in enumerate(converted.ravel().tolist()):
        if not isinstance(element, (str, bytes)):
            raise invalid_answer(path, "texts or bytes", describe(element))
        encoded[index] = element if isinstance(element, bytes) else text(element, path).encode()
    return encoded.reshape(converted.shape)
