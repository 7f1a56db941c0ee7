"""Drift, watched beside requests."""

import queue
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app.drift.baseline import Baseline
from app.drift.measuring import Seen, observed
from app.drift.monitor import Monitor, Watched, Window
from app.drift.sample import sample_of
from app.engine.answered import Datum, InferenceResult, Timings
from app.engine.events import InferenceEvent, RequestInfo
from app.observers.drift import HEADER, DriftWatch, Similarity
from app.observers.drift_metrics import DriftMetrics
from tasks.exchange.response import InferenceOutput
from tasks.image_classification import Classification, ClassificationInput
from tasks.vision.image import Image
from tasks.vision.selection import SelectionParameters
from tests.app.observers.test_tracing import event

ANSWER = Classification(labels=["red"], scores=np.array([0.5], np.float32))


def image(seed: int, light: int = 100) -> Image:
    """Noise around a brightness."""
    return Image(np.random.default_rng(seed).integers(light - 20, light + 20, (16, 16, 3)).astype(np.uint8))


def watched() -> Watched:
    """A model whose images are of one brightness."""
    seen = [Seen(id=str(seed), image=image(seed)) for seed in range(60)]
    return Watched("m", Baseline(sample=sample_of(observed(seen, "", None))), None)


def answered(*images: Image) -> InferenceResult:
    """One output for each."""
    data = [
        Datum(input=place, index=0, item=ClassificationInput(each, SelectionParameters()), prediction=ANSWER)
        for place, each in enumerate(images)
    ]
    outputs = [InferenceOutput(name="o", predictions=[ANSWER]) for _ in images]
    return InferenceResult(outputs=outputs, batch_size=len(images), timings=Timings(), data=data)


def told(answer: InferenceResult, seed: int, **more: Any) -> InferenceEvent:
    """An inference of it."""
    return msgspec.structs.replace(
        event(), answered=answer, task_type="IMAGE_CLASSIFICATION", id=f"event{seed}", **more
    )  # fmt: skip


class Watching:
    """A watch whose windows can be waited for."""

    def __init__(self, per_second: float = 1e6, size: int = 40) -> None:
        self.windows: queue.Queue[Window] = queue.Queue()
        self.registry = CollectorRegistry()
        self.model = watched()
        self.watch = DriftWatch(
            {"m": Monitor(self.model, size)}, DriftMetrics(self.registry), per_second, self.windows.put
        )  # fmt: skip

    @property
    def shown(self) -> str:
        """What Prometheus reads."""
        return generate_latest(self.registry).decode()


def test_a_drifted_window_is_told_and_measured() -> None:
    watching = Watching()
    images = [image(seed, light=180) for seed in range(40)]
    watching.watch.observe(told(answered(*images), 1))
    window = watching.windows.get(timeout=30)
    watching.watch.close()
    assert window.comparison.drifted
    assert 'charioteer_drift_detected{model="m"} 1.0' in watching.shown
    assert 'charioteer_drift_images_total{model="m",outcome="measured"} 40.0' in watching.shown
    assert 'charioteer_drift_windows_total{model="m"} 1.0' in watching.shown
    assert 'charioteer_drift_p{model="m",test="Kolmogorov-Smirnov"}' in watching.shown


@pytest.mark.parametrize(
    "other",
    [
        {"model_name": "nobody"},
        {"explanation": True},
        {"answered": None},
        {"caller": RequestInfo(protocol="p", request_id="r", returned={HEADER: "0.5"})},
    ],
)
def test_other_inferences_are_passed_over(other: dict[str, Any]) -> None:
    watching = Watching()
    watching.watch.observe(msgspec.structs.replace(told(answered(image(1)), 1), **other))
    watching.watch.close()
    assert "charioteer_drift_images_total{" not in watching.shown


def test_more_images_than_may_be_measured_are_skipped_and_counted() -> None:
    watching = Watching(per_second=2)
    for seed in range(10):
        watching.watch.observe(told(answered(image(seed)), seed))
    watching.watch.close()
    skipped = next(line for line in watching.shown.splitlines() if 'outcome="skipped"' in line)
    assert 5 <= float(skipped.split()[-1]) <= 8


def test_a_rush_is_dropped_and_counted_rather_than_kept_in_memory() -> None:
    watching = Watching(size=10_000)
    large = Image(np.zeros((8000, 8000, 3), np.uint8))
    for seed in range(20):
        watching.watch.observe(told(answered(large), seed))
    watching.watch.close()
    dropped = next(line for line in watching.shown.splitlines() if 'outcome="dropped"' in line)
    assert float(dropped.split()[-1]) >= 10


def test_similarity_is_a_parameter_and_a_header_and_measured_once() -> None:
    watching = Watching()
    addition = Similarity({"m": watching.model}, watching.watch)
    caller = RequestInfo(protocol="p", request_id="r")
    answer = answered(image(1000), image(1001, light=200))
    near, far = addition(caller, answer, "m")
    assert isinstance(near["similarity"], float)
    assert isinstance(far["similarity"], float)
    assert near["similarity"] > 0.1 > far["similarity"]
    assert caller.returned[HEADER] == f"{near['similarity']:g},{far['similarity']:g}"
    watching.watch.observe(told(answer, 1, caller=caller))
    assert addition(caller, answer, "nobody") == ()
    assert addition(caller, answered(), "m") == ()
    watching.watch.observe(told(answered(*[image(seed) for seed in range(38)]), 2))
    watching.watch.close()


def test_an_output_of_several_images_has_a_list() -> None:
    watching = Watching()
    addition = Similarity({"m": watching.model}, watching.watch)
    both = answered(image(1), image(2))
    both = msgspec.structs.replace(both, outputs=[InferenceOutput(name="o", predictions=[ANSWER, ANSWER])])
    (said,) = addition(RequestInfo(protocol="p", request_id="r"), both, "m")
    watching.watch.close()
    first, second = cast("list[float]", said["similarity"])
    assert 0 < first < 1
    assert 0 < second < 1


def test_an_image_that_cannot_be_measured_costs_no_window() -> None:
    watching = Watching()
    nan = Classification(labels=["red"], scores=np.array([np.nan], np.float32))
    bad = answered(image(1))
    bad = msgspec.structs.replace(bad, data=[msgspec.structs.replace(each, prediction=nan) for each in bad.data])
    seen = [Seen(id=str(seed), image=image(seed), records=[{"label": "red", "score": 0.5}]) for seed in range(60)]
    judged = Baseline(sample=sample_of(observed(seen, "IMAGE_CLASSIFICATION", None), "IMAGE_CLASSIFICATION"))
    watch = DriftWatch(
        {"m": Monitor(Watched("m", judged, None), 40)}, DriftMetrics(registry := CollectorRegistry()), 1e6,
        watching.windows.put,
    )  # fmt: skip
    watch.observe(told(bad, 0))
    watch.observe(told(answered(*[image(seed, light=180) for seed in range(40)]), 1))
    assert watching.windows.get(timeout=30).comparison.production == 40
    watch.close()
    watching.watch.close()
    assert 'charioteer_drift_images_total{model="m",outcome="failed"} 1.0' in generate_latest(registry).decode()


def test_another_baseline_takes_over_and_one_that_is_gone_is_forgotten() -> None:
    windows: queue.Queue[Window] = queue.Queue()
    changes: queue.Queue[dict[str, Monitor | None]] = queue.Queue()
    registry = CollectorRegistry()

    def look() -> dict[str, Monitor | None]:
        return changes.get() if changes.qsize() else {}

    drifted = [image(seed, light=180) for seed in range(40)]
    watch = DriftWatch({"m": Monitor(watched(), 40)}, DriftMetrics(registry), 1e6, windows.put, look, 0.01)
    watch.observe(told(answered(*drifted), 1))
    assert windows.get(timeout=30).comparison.drifted
    seen = [Seen(id=str(seed), image=image(seed, light=180)) for seed in range(100, 160)]
    other = Watched("m", Baseline(sample=sample_of(observed(seen, "", None))), None)
    changes.put({"m": Monitor(other, 40)})
    while changes.qsize() or "charioteer_drift_detected{" in generate_latest(registry).decode():
        pass
    watch.observe(told(answered(*drifted), 2))
    assert not windows.get(timeout=30).comparison.drifted
    changes.put({"m": None})
    while "charioteer_drift_detected{" in generate_latest(registry).decode():
        pass
    watch.close()
