"""What KServe's V1 and TensorFlow Serving have in common: a model below ``/v1/models``, asked in rows."""

from collections.abc import Callable
from typing import Any

from app.conformance.clause import FaultError
from app.conformance.probe import Exchange, Probe
from app.conformance.quoting import brief
from app.conformance.tensors import is_list, listed_model

__all__ = ("UNKNOWN", "expect_one_each", "given_instances", "model_path", "predict", "predictions_of")

UNKNOWN = "conform-unknown"
"""A name that no engine has for anything."""


def model_path(probe: Probe) -> str:
    """Where the model is that is held against the protocol."""
    return f"/v1/models/{listed_model(probe, '/v1/models')}"


def predict(probe: Probe, body: object) -> Exchange:
    """Ask it to predict."""
    return probe.post_json(f"{model_path(probe)}:predict", body)


def given_instances(probe: Probe) -> list[object] | None:
    """Two of the instances that the user gave, the first and the last."""
    given = (probe.target.request or {}).get("instances")
    return [given[0], given[-1]] if is_list(given) and given else None


def predictions_of(answer: dict[str, Any]) -> list[object]:
    """The predictions in an answer.

    Raises:
        FaultError: there is no array of them.
    """
    found = answer.get("predictions")
    if not is_list(found):
        raise FaultError(f"Expected an array of predictions, got {brief(found)}")
    return found


def expect_one_each(instances: list[object], predictions: Callable[[list[object]], list[object]]) -> None:
    """Raise a `FaultError` where there is not one prediction for each of two instances, and of one."""
    for asked in (instances, instances[:1]):
        if len(got := predictions(asked)) != len(asked):
            raise FaultError(f"Expected {len(asked)} predictions, got {brief(got)}")
