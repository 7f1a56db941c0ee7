"""Requests and responses of tensors in rows, with an object of named values for each row."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.tensor import Tensor

ValueT = TypeVar("ValueT")


def check_names(names: Collection[str], required: Collection[str], optional: Collection[str], path: str) -> None:
    """Reject an object at `path` without a required input, or with an unknown one.

    Raises:
        InferenceError: INVALID_REQUEST.
    """
    missing = next((name for name in required if name not in names), None)
    if missing is not None:
        raise invalid(f"Expected a value for the input {missing!r}, got none", path)
    unknown = next((name for name in names if name not in required and name not in optional), None)
    if unknown is not None:
        expected = ", ".join(map(repr, (*required, *optional)))
        raise invalid(f"Expected one of {expected}, got {quote_value(unknown)}", path)


def columns_of_rows(
    rows: Sequence[Mapping[str, ValueT]], required: Sequence[str], optional: Collection[str], path: str
) -> Mapping[str, Sequence[ValueT]]:
    """Return the values of each input over all rows. An optional input is in all rows or in none.

    Raises:
        InferenceError: INVALID_REQUEST naming the row under `path`.
    """
    expected = (*required, *(name for name in optional if name in rows[0]))
    rest = [name for name in optional if name not in expected]
    for index, row in enumerate(rows):
        check_names(row, expected, () if index else rest, f"{path}[{index}]")
    return {name: [row[name] for row in rows] for name in expected}


def prediction_rows(
    tensors: Sequence[Tensor], rows_of: Callable[[Tensor], Any], kind: ErrorKind, advice: str
) -> Sequence[Any]:
    """Return a prediction for each row: the row of the only output, or an object with the rows of all outputs.

    Args:
        tensors: the outputs.
        rows_of: returns the nested rows of an output.
        kind: the kind of the error.
        advice: what to do instead, for the error.

    Raises:
        InferenceError: for outputs without a common first dimension.
    """
    sizes = {tensor.shape[:1] for tensor in tensors}
    if len(sizes) != 1 or sizes == {()}:
        shapes = ", ".join(f"{tensor.name!r} {list(tensor.shape)}" for tensor in tensors)
        message = f"The outputs have no common first dimension and cannot be a list of predictions: {shapes}"
        raise InferenceError(kind, f"{message}. {advice}")
    columns = list(map(rows_of, tensors))
    if len(columns) == 1:
        return columns[0]
    names = [tensor.name for tensor in tensors]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
