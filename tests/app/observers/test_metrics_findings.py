"""Metrics of what models see and find; and that the dashboard asks for nothing else."""

import json
import re
from typing import Any

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app.engine.answered import Datum, InferenceResult, Timings
from app.engine.events import InferenceEvent
from app.observers.drift_metrics import DriftMetrics
from app.observers.findings import FindingMetrics
from app.observers.metrics import Metrics
from app.recording.report import Report
from tasks.exchange.error import ErrorKind
from tasks.image_classification import Classification
from tasks.object_detection import DetectionInput, DetectionParameters, Detections
from tasks.vision.image import Image
from tests.app.observers.test_tracing import event
from tests.support.server_process import ROOT

DASHBOARD = ROOT / "deploy" / "grafana" / "charioteer.json"
_METRIC = re.compile(r"charioteer_\w+")


def found(prediction: Any, task_type: str = "OBJECT_DETECTION", **more: Any) -> InferenceEvent:
    """An inference about one image of 40 x 30."""
    item = DetectionInput(Image(np.zeros((30, 40, 3), np.uint8)), DetectionParameters())
    data = [Datum(input=0, index=0, item=item, prediction=prediction)]
    answered = InferenceResult(outputs=(), batch_size=1, timings=Timings(), data=data)
    return msgspec.structs.replace(event(), answered=answered, task_type=task_type, **more)


def objects(*labels: str, score: float = 0.5) -> Detections:
    """One of each."""
    scores = np.full(len(labels), score, np.float32)
    return Detections(labels=labels, scores=scores, boxes=np.zeros((len(labels), 4), np.float32))


def told(*events: InferenceEvent) -> dict[str, float]:
    """What Prometheus reads."""
    registry = CollectorRegistry()
    metrics = FindingMetrics(registry, lambda model: ("cat", "dog") if model == "m" else ())
    for each in events:
        metrics.observe(each)
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_labels_scores_and_sizes_are_counted() -> None:
    said = told(found(objects("cat", "cat", "dog")), found(objects()), found(objects(*["dog"] * 50, score=0.95)))
    assert said['charioteer_predictions_total{label="cat",model="m"}'] == 2
    assert said['charioteer_predictions_total{label="dog",model="m"}'] == 51
    assert said['charioteer_prediction_score_bucket{le="0.4",model="m"}'] == 0
    assert said['charioteer_prediction_score_bucket{le="0.5",model="m"}'] == 3
    assert said['charioteer_prediction_score_bucket{le="0.9",model="m"}'] == 3
    assert said['charioteer_prediction_score_bucket{le="+Inf",model="m"}'] == 53
    assert said['charioteer_prediction_score_count{model="m"}'] == 53
    assert said['charioteer_prediction_score_sum{model="m"}'] == pytest.approx(49)
    assert said['charioteer_image_pixels_sum{model="m"}'] == 3 * 1200
    assert said['charioteer_batch_size_count{model="m"}'] == 3


def test_labels_that_senders_make_up_are_counted_as_one() -> None:
    said = told(*[found(objects(f"made up {index}")) for index in range(50)], found(objects("cat")))
    counted = {name: value for name, value in said.items() if name.startswith("charioteer_predictions_total")}
    assert counted == {
        'charioteer_predictions_total{label="other",model="m"}': 50,
        'charioteer_predictions_total{label="cat",model="m"}': 1,
    }


def test_of_a_classification_the_best_class_counts() -> None:
    classes = Classification(labels=["dog", "cat"], scores=np.array([0.8, 0.2], np.float32))
    said = told(found(classes, "IMAGE_CLASSIFICATION"))
    assert said['charioteer_predictions_total{label="dog",model="m"}'] == 1
    assert 'charioteer_predictions_total{label="cat",model="m"}' not in said


@pytest.mark.parametrize("other", [{"outcome": ErrorKind.MODEL_FAILED}, {"explanation": True}, {"answered": None}])
def test_failures_and_explanations_are_not(other: dict[str, Any]) -> None:
    assert told(msgspec.structs.replace(found(objects("cat")), **other)) == {}


def test_every_metric_of_the_dashboard_is_offered() -> None:
    registry = CollectorRegistry()
    Metrics(registry, lambda _: True)
    DriftMetrics(registry)
    Report(registry, "store")
    FindingMetrics(registry, lambda _: ("cat",)).observe(found(objects("cat")))
    suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    offered = {family.name + suffix for family in registry.collect() for suffix in suffixes[family.type]}
    asked = set(_METRIC.findall(DASHBOARD.read_text()))
    assert asked <= offered
    assert {name.rsplit("_", 1)[0] for name in asked} >= {
        "charioteer_inferences", "charioteer_predictions", "charioteer_recording_recorded", "charioteer_drift_windows",
    }  # fmt: skip


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells
        assert place["x"] + place["w"] <= 24
        taken |= cells
