"""Reading what a class returned, whatever library its arrays are of, with errors that name the place in it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.error import ErrorKind, InferenceError, brief

__all__ = (
    "Labels",
    "Place",
    "array",
    "column",
    "columns",
    "described",
    "fields",
    "finite",
    "items",
    "names",
    "numbers",
    "refused",
    "scores",
    "text",
)

Place = Callable[[int], str]
"""Where the n-th item stands in what was returned."""

_ROUNDING = 1e-4
"""So far beyond 0..1 a score may be: a softmax in half precision is."""


def refused(path: str, expected: str, got: str) -> InferenceError:
    """The failure of a model whose answer cannot be used."""
    return InferenceError(
        ErrorKind.MODEL_FAILED, f"The model's answer cannot be used: {path}: Expected {expected}, got {got}"
    )


class Labels:
    """Class names by class number.

    Args:
        known: the names known; without any, each class is called by its number.
    """

    def __init__(self, known: Sequence[str]) -> None:
        self.known = tuple(known)
        self._numbers = {name: number for number, name in reversed([*enumerate(known)])}

    def name(self, value: object, path: str) -> str:
        """The name of a class, given by name or by number.

        Raises:
            InferenceError: MODEL_FAILED for a number that has no name, or what is neither.
        """
        if isinstance(value, str):
            return text(value, path)
        number = _whole(value)
        if number is None or number < 0:
            raise refused(path, "the name or the number of a class", brief(value))
        if not self.known:
            return str(number)
        if number >= len(self.known):
            raise refused(path, f"one of {len(self.known)} classes, 0..{len(self.known) - 1}", str(number))
        return self.known[number]

    def number(self, name: str) -> int | None:
        """The number of a class, the first of several of one name; None for a name that is not known."""
        return self._numbers.get(name)


def text(value: object, path: str) -> str:
    """A text that can be written as UTF-8.

    Raises:
        InferenceError: MODEL_FAILED for anything else.
    """
    if not isinstance(value, str) or not _can_be_written(value):
        raise refused(path, "a text", described(value))
    return str(value)


def described(value: object) -> str:
    """What something is, in a few words."""
    if value is None or isinstance(value, (str, int, float)):
        return brief(value)
    kind, shape = type(value).__name__, getattr(value, "shape", None)
    if isinstance(value, Mapping):
        found = ", ".join(brief(key) for key in list(cast("Mapping[object, object]", value))[:8])
        return f"a {kind} with the keys {found or '(none)'}"
    if isinstance(shape, tuple):
        return f"an array of shape {tuple(cast('tuple[int, ...]', shape))}"
    if isinstance(value, (list, tuple)):
        return f"a {kind} of {len(cast('Sequence[object]', value))}"
    return f"an object of class {kind}"


def fields(value: object, path: str, wanted: Sequence[str]) -> Mapping[str, tuple[Any, str]] | None:
    """The keys of a mapping or the attributes of an object, each with its path; None when one of them is missing."""
    if isinstance(value, Mapping):
        found = cast("Mapping[object, Any]", value)
        return (
            {name: (found[name], f'{path}["{name}"]') for name in wanted}
            if all(map(found.__contains__, wanted))
            else None
        )
    if all(hasattr(value, name) for name in wanted):
        return {name: (getattr(value, name), f"{path}.{name}") for name in wanted}
    return None


def items(value: object) -> Sequence[Any] | None:
    """The items of a list, tuple or array; None for anything else."""
    if isinstance(value, (list, tuple)):
        return cast("Sequence[Any]", value)
    # A tensor of no dimensions has a length by name only.
    if getattr(value, "shape", ()) and hasattr(value, "__getitem__"):
        return cast("Sequence[Any]", value)
    return None


def columns(records: Sequence[object], path: str, wanted: Sequence[str]) -> Mapping[str, Sequence[Any]]:
    """The fields of a list of records, mappings or objects, field by field.

    Raises:
        InferenceError: MODEL_FAILED naming the record that lacks one.
    """
    found: dict[str, list[Any]] = {name: [] for name in wanted}
    for index, record in enumerate(records):
        each = fields(record, f"{path}[{index}]", wanted)
        if each is None:
            got = msgspec.structs.asdict(record) if isinstance(record, msgspec.Struct) else record
            raise refused(f"{path}[{index}]", f"the fields {', '.join(wanted)}", described(got))
        for name, (value, _) in each.items():
            found[name].append(value)
    return found


def numbers(value: object, path: str, shape: Sequence[int | str]) -> NDArray[np.float32]:
    """An array of numbers of any library, as float32.

    Args:
        value: a list, an array, or a tensor on any device.
        path: where it stands.
        shape: what its shape should be: a number for a side of that length, a letter for one of any length.

    Raises:
        InferenceError: MODEL_FAILED for another shape, or what is not numbers.
    """
    given, first = array(value, path), next(iter(shape))
    expected = f"numbers of shape ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
    if given.dtype.kind not in "biuf":
        raise refused(path, expected, f"{described(value)} of {given.dtype}")
    if given.size == 0 and isinstance(first, str):
        return np.zeros([0 if isinstance(side, str) else side for side in shape], np.float32)
    fits = given.ndim == len(shape) and all(
        isinstance(side, str) or side == found for side, found in zip(shape, given.shape, strict=True)
    )
    if not fits:
        raise refused(path, expected, f"shape {given.shape}")
    # What is too large for 32 bits becomes infinite, which is refused where it matters.
    with np.errstate(over="ignore"):
        return given.astype(np.float32)


def column(values: Sequence[object], place: Place) -> NDArray[np.float32]:
    """(N,) numbers that were returned one by one.

    Raises:
        InferenceError: MODEL_FAILED naming the first that is no number.
    """
    found = [array(each, place(index)) for index, each in enumerate(values)]
    for index, each in enumerate(found):
        if each.ndim or each.dtype.kind not in "biuf":
            raise refused(place(index), "a number", described(values[index]))
    with np.errstate(over="ignore"):
        return np.array(found, np.float64).astype(np.float32)


def finite(array: NDArray[np.float32], place: Place) -> NDArray[np.float32]:
    """`array`, if every number in it is finite.

    Raises:
        InferenceError: MODEL_FAILED naming the first item with one that is not.
    """
    if not np.isfinite(array).all():
        first = int(np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))[0])
        raise refused(place(first), "finite numbers", brief(array[first].tolist()))
    return array


def scores(value: object, path: str, place: Place, count: str = "N") -> NDArray[np.float32]:
    """(N,) scores within 0..1.

    Raises:
        InferenceError: MODEL_FAILED naming the first that is not finite, or out of range.
    """
    found = finite(numbers(value, path, (count,)), place)
    wrong = np.flatnonzero((found < -_ROUNDING) | (found > 1 + _ROUNDING))
    if len(wrong):
        raise refused(place(int(wrong[0])), "a score of 0..1", f"{found[wrong[0]]:g}")
    return np.clip(found, 0, 1)


def names(value: object, path: str, place: Place, labels: Labels) -> list[str]:
    """The names of N classes, given by name or by number.

    Raises:
        InferenceError: MODEL_FAILED naming the first that is neither.
    """
    found = items(value)
    if found is None:
        raise refused(path, "a list of class names or numbers", described(value))
    plain = cast("list[object]", array(found, path).tolist()) if hasattr(found, "ndim") else found
    return [labels.name(each, place(index)) for index, each in enumerate(plain)]


def _can_be_written(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def array(value: object, path: str) -> NDArray[Any]:
    """An array of any library, as NumPy's.

    Raises:
        InferenceError: MODEL_FAILED for what is none.
    """
    detach = getattr(value, "detach", None)
    if callable(detach):
        # A torch tensor, which may be on a device and may want a gradient.
        held = cast("Any", detach)().cpu()
        # NumPy has no bfloat16.
        value = held.float() if str(getattr(held, "dtype", None)) == "torch.bfloat16" else held
    try:
        return np.asarray(value)
    except Exception as error:  # noqa: BLE001  whatever library it is of
        raise refused(path, "an array", f"{described(value)} ({type(error).__name__}: {error})") from None


def _whole(value: object) -> int | None:
    """A class number, which a float array may have written as 3.0."""
    if getattr(value, "shape", None) == ():
        value = cast("Any", value).item()
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None
