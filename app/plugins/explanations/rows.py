"""Explain rows of numbers: how much each number contributes to the model's score, as a Shapley value.

Numbers of a baseline replace a row's numbers and return in a random order. A number's importance is the mean change of
the score when it returns (Štrumbelj and Kononenko 2014). The importances of a row add up to the difference between the
scores of the row and of the baseline, for any number of orders.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.error import invalid, model_failed, quote_value
from tasks.inference.request import Positive
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.tensor_inference import Tensors, TensorsInput

UNEXPLAINED_ROWS = "it does not map rows of numbers to one output with a number or numbers for each row"
"""The reason why a model without `explains_rows` is not explained."""

_NUMERIC = frozenset("biuf")


class RowExplanationParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a request that explains rows.

    Attributes:
        method: only Shapley values.
        samples: copies of each row with replaced numbers; a multiple of the numbers in a row is used.
        seed: seed of the random orders; the same seed gives the same explanation.
        label: the label or the index of the output to explain. By default the highest output of each row.
        baseline: the numbers that replace a row's: zeros, the mean of the request's rows, or given numbers.
        max_seconds: time after which the explanation ends with the orders so far; the server's limit also applies.
    """

    method: Literal["shapley"] = "shapley"
    samples: Positive | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    label: str | None = None
    baseline: Literal["zeros", "mean"] | list[float] = "zeros"
    max_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None


class RowImportance(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The explanation of one row.

    `label` names the explained output, or has its index as text; empty for a model with one output. `importances` are
    those of each number of the row, by input; they add up to `score` - `baseline_score`, the outputs for the row and
    the baseline. `samples` counts the copies of the row that the model processed.
    """

    label: str
    score: float
    baseline_score: float
    importances: Mapping[str, NDArray[np.float64]]
    samples: int
    seed: int


class RowTarget(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The rows of a request in `item` with their outputs, and the model; `labels` name the outputs of a row."""

    model: Callable[[Sequence[TensorsInput]], Sequence[Tensors]]
    item: TensorsInput
    prediction: Tensors
    labels: Sequence[str]

    @property
    def row_count(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.item.tensors.values())))


def explains_rows(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bool:
    """Return whether a model maps rows of numbers to one number, or to some numbers, for each row."""
    numeric = all(spec.datatype.kind in _NUMERIC and spec.datatype is not Datatype.BF16 for spec in (*inputs, *outputs))
    in_rows = all(spec.shape and spec.shape[0] == -1 for spec in (*inputs, *outputs))
    return bool(inputs) and numeric and in_rows and len(outputs) == 1 and len(outputs[0].shape) <= 2


def order_cost(target: RowTarget) -> int:
    """Return the rows that the model processes for one order of the numbers."""
    return (_width(target.item.tensors) - 1) * target.row_count


def explain_rows(
    target: RowTarget, parameters: RowExplanationParameters, orders: int, should_continue: Callable[[], bool]
) -> list[RowImportance]:
    """Explain each row by a number of random orders; by fewer if `should_continue` ends it.

    Every second order is the reverse of the one before, which lowers the variance. Raise INVALID_REQUEST without rows
    or numbers, or for an unknown label or a wrong baseline; MODEL_FAILED if the model fails, or returns other outputs
    for the copies.
    """
    inputs = target.item.tensors
    row_count, width = target.row_count, _width(inputs)
    if not width:
        raise invalid("Expected numbers in each row, got none", "inputs")
    if not row_count:
        raise invalid("Expected at least one row, got none", "inputs")
    outputs = _scores(target.prediction, row_count)
    columns = _explained_columns(outputs, target.labels, parameters.label)
    baseline = _baseline(inputs, parameters.baseline)
    baseline_scores = _scores(_run(target, baseline), 1)[0][columns]
    scores = np.take_along_axis(outputs, columns[:, None], 1)[:, 0]
    generator = np.random.default_rng(parameters.seed)
    totals = np.zeros((row_count, width))
    order = np.arange(width)
    count = 0
    while count < orders:
        order = order[::-1] if count % 2 else generator.permutation(width)
        kept = np.tri(width, k=-1, dtype=np.bool_)[1:][:, np.argsort(order)]
        path = [baseline_scores[None], _scores_of_copies(target, baseline, kept, columns), scores[None]]
        totals[:, order] += np.diff(np.concatenate(path), axis=0).T
        count += 1
        if not should_continue():
            break
    return [
        RowImportance(
            label=_label(int(column), outputs.shape[1], target.labels),
            score=float(score),
            baseline_score=float(baseline_score),
            importances=_by_input(row / count, inputs),
            samples=count * (width - 1),
            seed=parameters.seed,
        )
        for column, score, baseline_score, row in zip(columns, scores, baseline_scores, totals, strict=True)
    ]


def _scores_of_copies(
    target: RowTarget, baseline: Mapping[str, NDArray[Any]], kept: NDArray[np.bool_], columns: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return (copies, rows): the explained outputs of copies in which `baseline` replaces some numbers of each row.

    `kept` is (copies, numbers of a row), and `columns` has the explained output of each row.
    """
    if not len(kept):
        return np.empty((0, target.row_count))
    copies = {
        name: np.where(mask[:, np.newaxis], target.item.tensors[name], baseline[name]).reshape(-1, *mask.shape[1:])
        for name, mask in _by_input(kept, target.item.tensors).items()
    }
    scores = _scores(_run(target, copies), len(kept) * target.row_count)
    return np.take_along_axis(scores, np.tile(columns, len(kept))[:, None], 1).reshape(len(kept), -1)


def _run(target: RowTarget, tensors: Mapping[str, NDArray[Any]]) -> Tensors:
    (prediction,) = target.model([TensorsInput(tensors)])
    return prediction


def _scores(prediction: Tensors, row_count: int) -> NDArray[np.float64]:
    """Return (rows, outputs)."""
    (output,) = prediction.tensors
    if output.shape[:1] != (row_count,) or len(output.shape) > 2 or 0 in output.shape:
        raise model_failed(f"Expected outputs for {row_count} rows to explain, got the shape {list(output.shape)}")
    return output.data.reshape(row_count, -1).astype(np.float64)


def _explained_columns(outputs: NDArray[np.float64], labels: Sequence[str], label: str | None) -> NDArray[np.intp]:
    """Return the explained output of each row."""
    if label is None:
        return outputs.argmax(axis=1)
    names = [_label(column, outputs.shape[1], labels) for column in range(outputs.shape[1])]
    if label not in names:
        raise invalid(f"The model has no output {quote_value(label)}", "parameters.label")
    return np.full(len(outputs), names.index(label))


def _label(column: int, count: int, labels: Sequence[str]) -> str:
    if len(labels) == count:
        return labels[column]
    return str(column) if count > 1 else ""


def _baseline(inputs: Mapping[str, NDArray[Any]], choice: str | list[float]) -> Mapping[str, NDArray[Any]]:
    """Return the baseline as one row of every input."""
    width = _width(inputs)
    numbers = np.zeros(width)
    if isinstance(choice, list):
        if len(choice) != width:
            raise invalid(f"Expected {width} numbers, one for each of a row, got {len(choice)}", "parameters.baseline")
        numbers = np.array(choice)
    elif choice == "mean":
        numbers = np.concatenate([values.reshape(len(values), -1).mean(axis=0) for values in inputs.values()])
    baseline: dict[str, NDArray[Any]] = {}
    for name, row in _by_input(numbers, inputs).items():
        dtype = inputs[name].dtype
        rounded = row if dtype.kind == "f" else np.rint(row)
        with np.errstate(over="ignore", invalid="ignore"):
            converted = rounded.astype(dtype)
        in_range = np.isfinite(converted).all() if dtype.kind == "f" else np.array_equal(converted, rounded)
        if isinstance(choice, list) and not in_range:
            raise invalid(f"Expected numbers within the range of {dtype}", "parameters.baseline")
        baseline[name] = converted[None]
    return baseline


def _by_input(numbers: NDArray[Any], inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """Return the (..., numbers of a row) for each input as (..., shape of its rows)."""
    parts = np.split(numbers, np.cumsum([math.prod(values.shape[1:]) for values in inputs.values()])[:-1], axis=-1)
    return {
        name: part.reshape((*numbers.shape[:-1], *values.shape[1:]))
        for (name, values), part in zip(inputs.items(), parts, strict=True)
    }


def _width(inputs: Mapping[str, NDArray[Any]]) -> int:
    """Return the numbers of a row."""
    return sum(math.prod(values.shape[1:]) for values in inputs.values())
