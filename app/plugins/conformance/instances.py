"""Send requests of instances, which KServe V1 and TensorFlow Serving have in common, and read their predictions."""

from collections.abc import Callable, Mapping
from typing import Any

from app.plugins.conformance.check import expect
from app.plugins.conformance.client.exchange import Exchange
from app.plugins.conformance.client.model_names import model_in_path
from app.plugins.conformance.client.probe import Probe
from app.plugins.conformance.tensors import UNKNOWN, is_list

UNKNOWN_PATH = f"/v1/models/{UNKNOWN}"


def model_path(probe: Probe) -> str:
    """Return the path of the checked model."""
    return f"/v1/models/{model_in_path(probe, '/v1/models')}"


def predict(
    probe: Probe, body: Mapping[str, object], below: str = "", headers: Mapping[str, str] | None = None
) -> Exchange:
    """Send a predict request to the checked model, or to a path `below` it.

    Fields of the user's request other than instances and inputs are sent too, because the model may need them.
    """
    given = probe.target.request or {}
    others = {name: value for name, value in given.items() if name not in ("instances", "inputs")}
    return probe.post_json(f"{model_path(probe)}{below}:predict", {**others, **body}, headers)


def post_bad_json(probe: Probe) -> Exchange:
    """Send a predict request to the checked model that is not JSON."""
    return probe.post(f"{model_path(probe)}:predict", b'{"instances": [')


def given_instances(probe: Probe) -> list[object] | None:
    """Return the first and the last instance of the user's request, or None if it has none."""
    instances = (probe.target.request or {}).get("instances")
    return [instances[0], instances[-1]] if is_list(instances) and instances else None


def predictions_of(answer: dict[str, Any]) -> list[object]:
    """Return the predictions of a response. Raise ViolationError if `predictions` is not an array."""
    predictions: Any = answer.get("predictions")
    expect(is_list(predictions), "an array of predictions", predictions)
    return predictions


def expect_one_prediction_each(instances: list[object], predictions: Callable[[list[object]], list[object]]) -> None:
    """Raise a `ViolationError` unless two instances get two predictions, and one instance gets one."""
    for batch in (instances, instances[:1]):
        expect(len(got := predictions(batch)) == len(batch), f"{len(batch)} predictions", got)
