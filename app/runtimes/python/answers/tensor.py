"""Convert the return value of a tensor model."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.runtimes.python.answers.reading import array, described, refused, text
from tasks.exchange.tensor import Datatype, Tensor, TensorSpec
from tasks.tensor_inference import Tensors

__all__ = ("read_tensors",)


def read_tensors(value: object, path: str, specs: Sequence[TensorSpec]) -> Tensors:
    """Read the declared outputs from a dict of arrays by name.

    Raises:
        InferenceError: MODEL_FAILED if an output is missing, or its array has the wrong shape or type.
    """
    names = ", ".join(repr(spec.name) for spec in specs)
    if not isinstance(value, Mapping):
        raise refused(path, f"a dict of the arrays {names}", described(value))
    found = cast("Mapping[object, object]", value)
    if set(found) != {spec.name for spec in specs}:
        raise refused(path, f"a dict of the arrays {names}", described(found))
    return Tensors([_tensor(found[spec.name], f'{path}["{spec.name}"]', spec) for spec in specs])


def _tensor(value: object, path: str, spec: TensorSpec) -> Tensor:
    given = array(value, path)
    fits = given.ndim == len(spec.shape) and all(
        wanted in (-1, side) for side, wanted in zip(given.shape, spec.shape, strict=True)
    )
    if not fits:
        raise refused(path, f"the shape {list(spec.shape)}", str(list(given.shape)))
    if spec.datatype is Datatype.BYTES:
        return Tensor(name=spec.name, datatype=spec.datatype, data=_encoded(given, path))
    if given.dtype.kind not in "biuf" or not _can_hold(spec.datatype, given):
        raise refused(path, f"{spec.datatype} or values that it can represent", str(given.dtype))
    with np.errstate(over="ignore"):
        return Tensor(name=spec.name, datatype=spec.datatype, data=given.astype(spec.datatype.dtype))


def _can_hold(datatype: Datatype, given: NDArray[Any]) -> bool:
    """Return whether a conversion keeps the kind of numbers and the value of integers. Floats may lose precision."""
    if np.can_cast(given.dtype, datatype.dtype, "same_kind"):
        return given.dtype.kind == "f" or bool((given.astype(datatype.dtype) == given).all())
    # Python integers become INT64.
    integers = given.dtype.kind in "iu" and datatype.kind in "iu"
    return integers and bool((given.astype(datatype.dtype) == given).all())


def _encoded(given: NDArray[Any], path: str) -> NDArray[Any]:
    encoded = np.empty(given.size, object)
    for index, element in enumerate(given.ravel().tolist()):
        if not isinstance(element, (str, bytes)):
            raise refused(path, "texts or bytes", described(element))
        encoded[index] = element if isinstance(element, bytes) else text(element, path).encode()
    return encoded.reshape(given.shape)
