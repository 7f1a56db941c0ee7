"""Read return values with arrays of any library.

Functions with the parameter `path` raise an `InferenceError` MODEL_FAILED with the path of the first invalid value.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.error import InferenceError, model_failed, quote_value

ROUNDING = 1e-4
"""How far scores may exceed 0..1, because a softmax in half precision does."""


def invalid_answer(path: str, expected: str, got: str) -> InferenceError:
    """Return the error for an invalid return value."""
    return model_failed(f"The model's answer cannot be used: {path}: Expected {expected}, got {got}")


class ClassNames:
    """Class names by class number.

    Args:
        known: the names. If there are none, the number of a class is its name.
    """

    def __init__(self, known: Sequence[str]) -> None:
        self.known = tuple(known)
        self._numbers = {name: number for number, name in reversed([*enumerate(known)])}

    def name(self, value: object, path: str) -> str:
        """Return the name of a class given by name or by number."""
        if isinstance(value, str):
            return text(value, path)
        number = _integer(value)
        if number is None or number < 0:
            raise invalid_answer(path, "the name or the number of a class", quote_value(value))
        if not self.known:
            return str(number)
        if number >= len(self.known):
            raise invalid_answer(path, f"one of {len(self.known)} classes, 0..{len(self.known) - 1}", str(number))
        return self.known[number]

    def number(self, name: str) -> int | None:
        """Return the first number of a class name, or None for an unknown name."""
        return self._numbers.get(name)


def text(value: object, path: str) -> str:
    """Check that `value` is a string that UTF-8 can encode."""
    if isinstance(value, str):
        with suppress(UnicodeEncodeError):
            value.encode()
            return str(value)
    raise invalid_answer(path, "a text", describe(value))


def describe(value: object) -> str:
    """Return a short description of a value for an error message."""
    if value is None or isinstance(value, (str, int, float)):
        return quote_value(value)
    type_name, shape = type(value).__name__, getattr(value, "shape", None)
    if isinstance(value, Mapping):
        keys = ", ".join(quote_value(key) for key in list(cast("Mapping[object, object]", value))[:8])
        return f"a {type_name} with the keys {keys or '(none)'}"
    if isinstance(shape, tuple):
        return f"an array of shape {tuple(cast('tuple[int, ...]', shape))}"
    if isinstance(value, (list, tuple)):
        return f"a {type_name} of {len(cast('Sequence[object]', value))}"
    return f"an object of class {type_name}"


def fields(value: object, path: str, field_names: Sequence[str]) -> Mapping[str, tuple[Any, str]] | None:
    """Return keys of a mapping or attributes of an object, each with its path; None if one is missing."""
    if isinstance(value, Mapping):
        mapping = cast("Mapping[object, Any]", value)
        if all(map(mapping.__contains__, field_names)):
            return {name: (mapping[name], f'{path}["{name}"]') for name in field_names}
    elif all(hasattr(value, name) for name in field_names):
        return {name: (getattr(value, name), f"{path}.{name}") for name in field_names}
    return None


def items(value: object) -> Sequence[Any] | None:
    """Return the items of a list, tuple or array; None for anything else."""
    if isinstance(value, (list, tuple)):
        return cast("Sequence[Any]", value)
    # A tensor without dimensions has `__len__`, but it raises.
    if getattr(value, "shape", ()) and hasattr(value, "__getitem__"):
        return cast("Sequence[Any]", value)
    return None


def columns(records: Sequence[object], path: str, field_names: Sequence[str]) -> Mapping[str, Sequence[Any]]:
    """Convert a list of mappings or objects to one list for each wanted field."""
    by_field: dict[str, list[Any]] = {name: [] for name in field_names}
    for index, record in enumerate(records):
        row = fields(record, f"{path}[{index}]", field_names)
        if row is None:
            got = msgspec.structs.asdict(record) if isinstance(record, msgspec.Struct) else record
            raise invalid_answer(f"{path}[{index}]", f"the fields {', '.join(field_names)}", describe(got))
        for name, (value, _) in row.items():
            by_field[name].append(value)
    return by_field


def numbers(value: object, path: str, shape: Sequence[int | str]) -> NDArray[np.float32]:
    """Convert numbers of any library to a float32 array.

    Args:
        value: a list, an array, or a tensor on any device.
        path: its path in error messages.
        shape: expected shape: a number for a fixed side, a letter for a side of any length.
    """
    converted, first_side = array(value, path), next(iter(shape))
    expected = f"numbers of shape ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
    if converted.dtype.kind not in "biuf":
        raise invalid_answer(path, expected, f"{describe(value)} of {converted.dtype}")
    if converted.size == 0 and isinstance(first_side, str):
        return np.zeros([0 if isinstance(side, str) else side for side in shape], np.float32)
    fits = converted.ndim == len(shape) and all(
        isinstance(side, str) or side == side_length for side, side_length in zip(shape, converted.shape, strict=True)
    )
    if not fits:
        raise invalid_answer(path, expected, f"shape {converted.shape}")
    # Values out of the range of float32 become infinite; `finite` rejects them.
    with np.errstate(over="ignore"):
        return converted.astype(np.float32)


def column(values: Sequence[object], path: str, name: str) -> NDArray[np.float32]:
    """Convert the field `name` of N records to an (N,) float32 array."""
    scalars = [array(value, f"{path}[{index}].{name}") for index, value in enumerate(values)]
    for index, scalar in enumerate(scalars):
        if scalar.ndim or scalar.dtype.kind not in "biuf":
            raise invalid_answer(f"{path}[{index}].{name}", "a number", describe(values[index]))
    with np.errstate(over="ignore"):
        return np.array(scalars, np.float64).astype(np.float32)


def check_items(
    valid: NDArray[np.bool_], values: NDArray[np.float32], expected: str, path: str | Callable[[int], str]
) -> None:
    """Check that N items are completely `valid`; `path` is the array's path, or a function of an item's index."""
    if not valid.all():
        index = int(np.argwhere(~valid)[0, 0])
        got = f"{values[index]:g}" if values.ndim == 1 else quote_value(values[index].tolist())
        raise invalid_answer(f"{path}[{index}]" if isinstance(path, str) else path(index), expected, got)


def finite(values: NDArray[np.float32], path: str | Callable[[int], str]) -> NDArray[np.float32]:
    """Check that every number in `values` is finite; `path` as in `check_items`."""
    check_items(np.isfinite(values), values, "finite numbers", path)
    return values


def scores(value: object, path: str, item_path: Callable[[int], str] | None = None) -> NDArray[np.float32]:
    """Convert N scores to an (N,) float32 array in 0..1; `item_path` returns that of an index, unlike `path[index]`."""
    values = finite(numbers(value, path, ("N",)), item_path or path)
    check_items((values >= -ROUNDING) & (values <= 1 + ROUNDING), values, "a score of 0..1", item_path or path)
    return np.clip(values, 0, 1)


def names(value: object, path: str, labels: ClassNames) -> list[str]:
    """Return the names of N classes given by name or by number."""
    listed = items(value)
    if listed is None:
        raise invalid_answer(path, "a list of class names or numbers", describe(value))
    plain = cast("list[object]", array(listed, path).tolist()) if hasattr(listed, "ndim") else listed
    return [labels.name(name, f"{path}[{index}]") for index, name in enumerate(plain)]


def array(value: object, path: str, dtype: type | None = None) -> NDArray[Any]:
    """Convert an array of any library to NumPy, with its own datatype unless `dtype` is another."""
    detach = getattr(value, "detach", None)
    if callable(detach):
        # A torch tensor, which may be on a device and require a gradient.
        tensor = cast("Any", detach)().cpu()
        # NumPy has no bfloat16.
        value = tensor.float() if str(getattr(tensor, "dtype", None)) == "torch.bfloat16" else tensor
    elif isinstance(value, (list, tuple)):
        value = [array(part, path) if hasattr(part, "detach") else part for part in cast("Sequence[object]", value)]
    try:
        return np.asarray(value, dtype)
    except Exception as error:  # noqa: BLE001  any library may raise any type
        raise invalid_answer(path, "an array", f"{describe(value)} ({type(error).__name__}: {error})") from None


def _integer(value: object) -> int | None:
    """Return a class number, which a float array may contain as 3.0; None for anything else."""
    if getattr(value, "shape", None) == ():
        value = cast("Any", value).item()
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None
