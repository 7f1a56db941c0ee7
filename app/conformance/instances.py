"""Share code between KServe V1 and TensorFlow Serving: both have models below ``/v1/models`` and row requests."""

from collections.abc import Callable
from typing import Any

from app.conformance.clause import FaultError
from app.conformance.probe import Exchange, Probe
from app.conformance.quoting import brief
from app.conformance.tensors import is_list, listed_model

__all__ = ("UNKNOWN", "expect_one_each", "given_instances", "model_path", "predict", "predictions_of")

UNKNOWN = "conform-unknown"
"""A name that no engine knows."""


def model_path(probe: Probe) -> str:
    """Return the path of the checked model."""
    return f"/v1/models/{listed_model(probe, '/v1/models')}"


def predict(probe: Probe, body: object) -> Exchange:
    """Send a predict request to the checked model."""
    return probe.post_json(f"{model_path(probe)}:predict", body)


def given_instances(probe: Probe) -> list[object] | None:
    """Return the first and the last instance of the user's request, or None if it has none."""
    given = (probe.target.request or {}).get("instances")
    return [given[0], given[-1]] if is_list(given) and given else None


def predictions_of(answer: dict[str, Any]) -> list[object]:
    """Return the predictions of a response.

    Raises:
        FaultError: `predictions` is not an array.
    """
    found = answer.get("predictions")
    if not is_list(found):
        raise FaultError(f"Expected an array of predictions, got {brief(found)}")
    return found


def expect_one_each(instances: list[object], predictions: Callable[[list[object]], list[object]]) -> None:
    """Raise a `FaultError` unless two instances get two predictions, and one instance gets one."""
    for asked in (instances, instances[:1]):
        if len(got := predictions(asked)) != len(asked):
            raise FaultError(f"Expected {len(asked)} predictions, got {brief(got)}")
