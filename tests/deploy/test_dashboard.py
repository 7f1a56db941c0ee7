"""The dashboard of Grafana uses only metrics that exist."""

import json
import re

from prometheus_client import CollectorRegistry

from app.core.observers.metrics import Metrics
from app.plugins.drift.monitor import DriftMetrics
from app.plugins.prediction_metrics.metrics import PredictionMetrics
from app.plugins.recording.recording_metrics import RecordingMetrics
from tests.plugins.prediction_metrics.test_metrics import detections, event_of
from tests.support.servers.server_process import ROOT

DASHBOARD = ROOT / "deploy" / "grafana" / "charioteer.json"
_METRIC = re.compile(r"charioteer_\w+")


def test_every_metric_of_the_dashboard_exists() -> None:
    registry = CollectorRegistry()
    Metrics(registry, str)
    DriftMetrics(registry)
    RecordingMetrics(registry, "store")
    PredictionMetrics(registry, lambda _: ("cat",)).observe(event_of(detections("cat")))
    suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    existing = {family.name + suffix for family in registry.collect() for suffix in suffixes[family.type]}
    used = set(_METRIC.findall(DASHBOARD.read_text()))
    assert used <= existing
    assert {name.rsplit("_", 1)[0] for name in used} >= {
        "charioteer_inferences", "charioteer_predictions", "charioteer_recording_recorded", "charioteer_drift_windows",
    }  # fmt: skip


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    occupied: set[tuple[int, int]] = set()
    for panel in panels:
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not occupied & cells
        assert position["x"] + position["w"] <= 24
        occupied |= cells
