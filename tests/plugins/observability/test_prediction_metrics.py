"""Metrics of images and predictions."""

from typing import Any

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app.core.engine.request_context import RequestContext
from app.plugins.observability.prediction_metrics import PredictionMetrics
from tasks.image_classification import Classification
from tasks.inference.error import ErrorKind
from tasks.inference.response import InferenceResult, SampleResult
from tasks.object_detection import DetectionInput, DetectionParameters, Detections
from tasks.vision.image import Image
from tests.support.data.inference_events import event


def event_of(prediction: Any, task_type: str = "OBJECT_DETECTION", **changes: Any) -> RequestContext:
    """Return the event of an inference on one image of 40 x 30."""
    item = DetectionInput(Image(np.zeros((30, 40, 3), np.uint8)), DetectionParameters())
    data = [SampleResult(input=0, index=0, item=item, prediction=prediction)]
    result = InferenceResult(outputs=(), batch_size=1, samples=data)
    return msgspec.structs.replace(event(), result=result, task_type=task_type, **changes)


def detections(*labels: str, score: float = 0.5) -> Detections:
    """Return one detection for each label."""
    scores = np.full(len(labels), score, np.float32)
    return Detections(labels=labels, scores=scores, boxes=np.zeros((len(labels), 4), np.float32))


def metrics_after(*events: RequestContext) -> dict[str, float]:
    """Return the exported metrics after `events`."""
    registry = CollectorRegistry()
    metrics = PredictionMetrics(registry, lambda model: ("cat", "dog") if model == "m" else ())
    for inference in events:
        metrics.observe(inference)
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_labels_scores_and_sizes_are_counted() -> None:
    found = detections("cat", "cat", "dog"), detections(), detections(*["dog"] * 50, score=0.95)
    values = metrics_after(*map(event_of, found))
    for label, count in {"cat": 2, "dog": 51}.items():
        assert values[f'charioteer_predictions_total{{label="{label}",model="m"}}'] == count
    for bound, count in {"0.4": 0, "0.5": 3, "0.9": 3, "+Inf": 53}.items():
        assert values[f'charioteer_prediction_score_bucket{{le="{bound}",model="m"}}'] == count
    assert values['charioteer_prediction_score_count{model="m"}'] == 53
    assert values['charioteer_prediction_score_sum{model="m"}'] == pytest.approx(49)
    assert values['charioteer_image_pixels_sum{model="m"}'] == 3 * 1200
    assert values['charioteer_batch_size_count{model="m"}'] == 3


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_score_that_is_not_finite_stays_out_of_the_sum(score: float) -> None:
    values = metrics_after(event_of(detections("cat", score=score)), event_of(detections("cat")))
    assert values['charioteer_prediction_score_sum{model="m"}'] == 0.5
    assert values['charioteer_prediction_score_count{model="m"}'] == 1


def test_unknown_labels_are_counted_together() -> None:
    unknown = [f"made up {index}" for index in range(50)]
    values = metrics_after(*(event_of(detections(label)) for label in [*unknown, "cat"]))
    counted = {name: value for name, value in values.items() if name.startswith("charioteer_predictions_total")}
    assert counted == {
        'charioteer_predictions_total{label="other",model="m"}': 50,
        'charioteer_predictions_total{label="cat",model="m"}': 1,
    }


def test_only_best_class_of_classification_is_counted() -> None:
    classes = Classification(labels=["dog", "cat"], scores=np.array([0.8, 0.2], np.float32))
    values = metrics_after(event_of(classes, "IMAGE_CLASSIFICATION"))
    assert values['charioteer_predictions_total{label="dog",model="m"}'] == 1
    assert 'charioteer_predictions_total{label="cat",model="m"}' not in values


@pytest.mark.parametrize(
    "other", [{"outcome": ErrorKind.MODEL_FAILED}, {"explanation": True}, {"trial": True}, {"result": None}]
)
def test_failures_explanations_and_trials_are_not_counted(other: dict[str, Any]) -> None:
    assert metrics_after(msgspec.structs.replace(event_of(detections("cat")), **other)) == {}
