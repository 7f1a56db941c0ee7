"""Test explanations of rows: Shapley values of models whose values are known."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.plugins.explanations.rows import (
    RowExplanationParameters,
    RowImportance,
    RowTarget,
    explain_rows,
    explains_rows,
    order_cost,
)
from tasks.inference.tensor import Datatype, Tensor, TensorSpec
from tasks.tensor_inference import Tensors, TensorsInput
from tests.support.rejection import rejects

Function = Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]

ROWS = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
WEIGHTS = np.array([[1, 0], [2, 1], [-1, 3]], np.float32)


def linear(tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    return tensors["x"] @ WEIGHTS


def product(tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    return tensors["x"].prod(axis=1)


def target_of(function: Function, labels: Sequence[str] = (), **tensors: NDArray[Any]) -> RowTarget:
    def model(items: Sequence[TensorsInput]) -> Sequence[Tensors]:
        return [Tensors([Tensor(name="y", datatype=Datatype.FP32, data=function(item.tensors))]) for item in items]

    item = TensorsInput(tensors)
    return RowTarget(model=model, item=item, prediction=model([item])[0], labels=labels)


def importances(
    target: RowTarget, orders: int = 10, *, should_continue: Callable[[], bool] = lambda: True, **parameters: Any
) -> list[RowImportance]:
    return explain_rows(target, RowExplanationParameters(**parameters), orders, should_continue)


def test_importance_in_a_linear_model_is_weight_times_number() -> None:
    explained = importances(target_of(linear, x=ROWS))
    assert [row.label for row in explained] == ["1", "1"]
    for row, numbers in zip(explained, ROWS, strict=True):
        np.testing.assert_allclose(row.importances["x"], numbers * WEIGHTS[:, 1], atol=1e-4)


@pytest.mark.parametrize("orders", [1, 2, 7])
@pytest.mark.parametrize("baseline", ["zeros", "mean", [1.0, 1.0, 2.0]])
def test_importances_add_up_to_the_change_from_the_baseline(orders: int, baseline: str | list[float]) -> None:
    for row in importances(target_of(product, x=ROWS), orders, baseline=baseline):
        assert row.importances["x"].sum() == pytest.approx(row.score - row.baseline_score, abs=1e-4)


def test_interaction_is_shared_equally() -> None:
    row, _ = importances(target_of(product, x=ROWS), 600, baseline=[0.0, 0.0, 0.0])
    # The product is zero until the last number returns.
    np.testing.assert_allclose(row.importances["x"], [2, 2, 2], atol=0.4)


def test_label_chooses_the_output() -> None:
    target = target_of(linear, ("cat", "dog"), x=ROWS)
    assert [row.label for row in importances(target)] == ["dog", "dog"]
    first = importances(target, label="cat")[0]
    assert (first.label, first.score) == ("cat", 2.0)
    np.testing.assert_allclose(first.importances["x"], ROWS[0] * WEIGHTS[:, 0], atol=1e-4)


def test_same_seed_gives_the_same_importances() -> None:
    target = target_of(product, x=ROWS)
    first, again, other = (importances(target, 1, seed=seed)[0].importances["x"] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_inputs_of_several_names_and_shapes_are_explained_together() -> None:
    def function(tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        return tensors["a"].sum(axis=(1, 2)) + 10 * tensors["b"]

    a = np.arange(8, dtype=np.int64).reshape(2, 2, 2)
    rows = importances(target_of(function, a=a, b=np.array([1.0, 2.0], np.float32)))
    for row, numbers, weight in zip(rows, a, (10, 20), strict=True):
        assert row.label == ""
        np.testing.assert_allclose(row.importances["a"], numbers, atol=1e-4)
        np.testing.assert_allclose(row.importances["b"], weight, atol=1e-4)


def test_explanation_ends_early_with_the_orders_so_far() -> None:
    (row, _) = importances(target_of(linear, x=ROWS), 100, should_continue=lambda: False)
    assert row.samples == 2
    assert order_cost(target_of(linear, x=ROWS)) == 4


@pytest.mark.parametrize(
    ("rows", "parameters", "path"),
    [
        (ROWS, {"label": "2"}, "parameters.label"),
        (ROWS, {"baseline": [1.0]}, "parameters.baseline"),
        (ROWS.astype(np.uint8), {"baseline": [1.0, -1.0, 1.0]}, "parameters.baseline"),
        (ROWS.astype(np.int32), {"baseline": [1.0, 1e30, 1.0]}, "parameters.baseline"),
        (ROWS.astype(np.float16), {"baseline": [1.0, 1e6, 1.0]}, "parameters.baseline"),
        (ROWS[:0], {}, "inputs"),
        (ROWS[:, :0], {}, "inputs"),
    ],
)
def test_invalid_rows_and_parameters_are_rejected(rows: NDArray[Any], parameters: dict[str, Any], path: str) -> None:
    target = target_of(lambda tensors: tensors["x"].sum(axis=1, keepdims=True), x=rows)
    assert (order_cost(target) > 0) is (rows.size > 0)
    with rejects(path=path):
        importances(target, **parameters)


def spec(*shape: int, datatype: Datatype = Datatype.FP32) -> TensorSpec:
    return TensorSpec(name="x", datatype=datatype, shape=shape)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ([spec(1, 3)], [spec(-1)]),
        ([spec(-1, datatype=Datatype.BYTES)], [spec(-1)]),
        ([spec(-1, 3)], [spec(-1), spec(-1)]),
        ([spec(-1, 3)], [spec(-1, 2, 2)]),
        ([spec(-1, 3)], [spec()]),
        ([], [spec(-1)]),
    ],
)
def test_models_without_rows_of_numbers_have_no_explanations(
    inputs: list[TensorSpec], outputs: list[TensorSpec]
) -> None:
    assert explains_rows([spec(-1, 3)], [spec(-1)])
    assert not explains_rows(inputs, outputs)
